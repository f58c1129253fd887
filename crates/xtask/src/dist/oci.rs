//! An image for containers from the static binary, as an archive of an OCI image layout (OCI Image
//! Format Specification 1.1). `podman load` and `docker load` take the archive.

use anyhow::Result;
use serde_json::{Value, json};

use super::tree::{Tree, gzip, sha256};
use super::{Role, Source};

/// The user of the daemon. A number: the image has no `/etc/passwd`, and `runAsNonRoot` of
/// Kubernetes accepts no name.
const USER: u64 = 65532;

/// The files of the images. The same for all roles.
#[derive(Debug)]
pub(super) struct Layer {
    packed: Vec<u8>,
    /// SHA-256 of the archive before it was packed.
    diff_id: String,
}

/// Packs the files of the images.
pub(super) fn layer(source: &Source) -> Result<Layer> {
    let mut root = Tree::default();
    root.file("tunnel", 0o755, source.program.clone());
    // A volume takes over the owner of the folder below it.
    root.folder("state", 0o755, USER);
    for (name, text) in &source.licences {
        root.file(&format!("licences/{name}"), 0o644, text.clone());
    }
    let tar = root.tar(source.epoch)?;
    Ok(Layer { packed: gzip(&tar)?, diff_id: sha256(&tar)? })
}

/// The archive of a role's image.
pub(super) fn image(source: &Source, role: Role, layer: &Layer) -> Result<Vec<u8>> {
    let config = config(source, role, &layer.diff_id)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config)?,
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer.packed)?],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut of_manifest = descriptor(MANIFEST, &manifest)?;
    of_manifest["platform"] = platform(source);
    of_manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": format!("tunnel-{}:{}", role.name(), source.version),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [of_manifest],
    });
    let mut layout = Tree::default();
    layout.file(
        "oci-layout",
        0o644,
        serde_json::to_vec(&json!({ "imageLayoutVersion": "1.0.0" }))?,
    );
    layout.file("index.json", 0o644, serde_json::to_vec(&index)?);
    for blob in [config, manifest, layer.packed.clone()] {
        layout.file(&format!("blobs/sha256/{}", sha256(&blob)?), 0o644, blob);
    }
    layout.tar(source.epoch)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn descriptor(media_type: &str, blob: &[u8]) -> Result<Value> {
    Ok(json!({
        "mediaType": media_type,
        "digest": format!("sha256:{}", sha256(blob)?),
        "size": blob.len(),
    }))
}

fn platform(source: &Source) -> Value {
    source.arch.variant().map_or_else(
        || json!({ "os": "linux", "architecture": source.arch.of_go() }),
        |variant| json!({ "os": "linux", "architecture": source.arch.of_go(), "variant": variant }),
    )
}

fn config(source: &Source, role: Role, diff_id: &str) -> Result<Vec<u8>> {
    let created = source.date("%Y-%m-%dT%H:%M:%SZ")?;
    let mut config = platform(source);
    config["created"] = json!(created);
    config["rootfs"] = json!({ "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] });
    config["history"] = json!([{ "created": created, "created_by": "cargo xtask dist" }]);
    config["config"] = json!({
        "User": format!("{USER}:{USER}"),
        "Entrypoint": ["/tunnel"],
        "Cmd": [role.name(), "--config", "/etc/tunnel.yaml"],
        // The daemon makes this folder with mode 0700. The volume may have any mode.
        "Env": ["STATE_DIRECTORY=/state/tunnel"],
        "Volumes": { "/state": {} },
        "StopSignal": "SIGTERM",
        "Labels": {
            "org.opencontainers.image.title": format!("tunnel {}", role.name()),
            "org.opencontainers.image.version": source.version,
            "org.opencontainers.image.licenses": source.licence,
        },
    });
    if role == Role::Server {
        // The ports of clients. It opens nothing: `--publish` does.
        config["config"]["ExposedPorts"] = json!({ "7000/tcp": {}, "7000/udp": {} });
    }
    Ok(serde_json::to_vec(&config)?)
}

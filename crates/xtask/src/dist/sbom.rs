//! What is in the program: a bill of materials (CycloneDX 1.5, JSON) and the licences of the
//! crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::Source;
use super::source::Memory;
use super::tree::sha256;
use crate::walls::graph::Graph;
use xtask::child::cargo;
use xtask::packages::BARE_TARGET;

/// The crates in the program, and those that run while it is built.
#[derive(Debug)]
pub(super) struct Materials {
    crates: BTreeMap<Id, Material>,
}

/// Name and version of a crate.
type Id = (String, String);

#[derive(Debug)]
struct Material {
    /// SPDX expression.
    licence: String,
    /// SHA-256 of the archive at the registry. `None`: a crate of this workspace.
    checksum: Option<String>,
    /// The folder of the source.
    folder: PathBuf,
    repository: Option<String>,
    needs: BTreeSet<Id>,
    /// Whether its code is in the program. The other crates run at build time.
    linked: bool,
}

impl Materials {
    /// The crates of a build for this triple, as `build-static.sh` makes it. The page for browsers
    /// is a build of its own.
    pub(super) fn of(root: &Path, triple: &str) -> Result<Self> {
        let features = ["--no-default-features", "--features", "mimalloc"];
        let program = ["--package", "tunnel", "--target", triple];
        let page = ["--package", "browser", "--target", BARE_TARGET];
        let graphs = |edges: &'static str| -> Result<[Graph; 2]> {
            Ok([
                Graph::of(root, &[&program[..], &features, &["--edges", edges]].concat())?,
                Graph::of(root, &[&page[..], &["--edges", edges]].concat())?,
            ])
        };
        let linked: BTreeSet<String> = graphs("normal,no-proc-macro")?
            .iter()
            .flat_map(|graph| graph.packages().map(|(name, _)| name.to_owned()))
            .collect();
        let (checksums, about) = (checksums(root)?, metadata(root)?);
        let mut crates = BTreeMap::new();
        for (package, of) in graphs("normal,build")?.iter().flat_map(Graph::packages) {
            let id = id(package)?;
            let found = about.get(&id).with_context(|| format!("no metadata of {package}"))?;
            let needs =
                of.needs.iter().map(|need| self::id(need)).collect::<Result<BTreeSet<_>>>()?;
            let entry = crates.entry(id.clone()).or_insert_with(|| Material {
                // The old form is no SPDX.
                licence: of.licence.replace('/', " OR "),
                checksum: checksums.get(&id).cloned(),
                folder: found.0.clone(),
                repository: found.1.clone(),
                needs: BTreeSet::new(),
                linked: linked.contains(package),
            });
            entry.needs.extend(needs);
        }
        Ok(Self { crates })
    }

    /// The bill of materials of a program.
    pub(super) fn bill(&self, source: &Source) -> Result<Vec<u8>> {
        let own = &("tunnel".to_owned(), source.version.clone());
        let (mut components, mut dependencies) = (Vec::new(), Vec::new());
        for (id, material) in &self.crates {
            let mut component = json!({
                "type": if id == own { "application" } else { "library" },
                "bom-ref": reference(id),
                "name": id.0,
                "version": id.1,
                "scope": if material.linked { "required" } else { "excluded" },
                "licenses": [{ "expression": material.licence }],
            });
            if let Some(sum) = &material.checksum {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
                component["purl"] = json!(reference(id));
            }
            if let Some(url) = &material.repository {
                component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
            }
            if id == own {
                component["hashes"] =
                    json!([{ "alg": "SHA-256", "content": sha256(&source.program)? }]);
                component["purl"] = json!(reference(id));
            }
            let needs: Vec<_> = material.needs.iter().map(reference).collect();
            dependencies.push(json!({ "ref": reference(id), "dependsOn": needs }));
            components.push(component);
        }
        // The C library and the standard library of Rust come with the target.
        let (musl, std) = ("musl", format!("rust-std@{}", source.compiler));
        components.push(json!({
            "type": "library", "bom-ref": musl, "name": "musl", "scope": "required",
            "licenses": [{ "expression": "MIT" }],
            "description": format!("as Rust {} brings it", source.compiler),
        }));
        components.push(json!({
            "type": "library", "bom-ref": std, "name": "rust-std", "version": source.compiler,
            "scope": "required", "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        }));
        let mut linked = vec![json!(musl), json!(std)];
        if let Some(memory) = &source.memory {
            let reference = format!("pkg:pypi/ziglang@{}", memory.version);
            components.push(json!({
                "type": "library", "bom-ref": reference, "name": "zig-compiler-rt",
                "version": memory.version, "scope": "required", "purl": reference,
                "licenses": [{ "expression": "MIT" }],
                "description": "memcpy, memmove, memset",
            }));
            linked.push(json!(reference));
        }
        let main = components
            .iter()
            .position(|component| component["bom-ref"] == reference(own))
            .context("the program is not among its crates")?;
        let main = components.remove(main);
        for dependency in &mut dependencies {
            if dependency["ref"] == main["bom-ref"]
                && let Some(needs) = dependency["dependsOn"].as_array_mut()
            {
                needs.append(&mut linked);
            }
        }
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "serialNumber": serial(&components)?,
            "version": 1,
            "metadata": {
                "timestamp": source.date("%Y-%m-%dT%H:%M:%SZ")?,
                "component": main,
                "properties": [{ "name": "target", "value": source.arch.triple() }],
            },
            "components": components,
            "dependencies": dependencies,
        });
        Ok(serde_json::to_vec_pretty(&bill)?)
    }

    /// The licences and notices of the crates in the program, and of its functions of memory. Each
    /// text stands once, below the crates that have it.
    pub(super) fn notices(&self, memory: Option<&Memory>) -> Result<String> {
        let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        if let Some(memory) = memory {
            let name = format!("zig {}: memcpy, memmove, memset", memory.version);
            texts.entry(memory.licence.clone()).or_default().insert(name);
        }
        let mut without = Vec::new();
        let foreign = |of: &&Material| of.linked && of.checksum.is_some();
        for (id, material) in self.crates.iter().filter(|(_, of)| foreign(of)) {
            let name = format!("{} {}", id.0, id.1);
            let found = notices(&material.folder)?;
            if found.is_empty() {
                without.push(format!("{name} ({})", material.licence));
            }
            for text in found {
                texts.entry(text).or_default().insert(name.clone());
            }
        }
        let mut all = "Licences and notices of the crates in the program tunnel.\n".to_owned();
        if !without.is_empty() {
            all.push_str(
                "\nCrates whose source has no text of a licence, with the licence that they \
                          state:\n",
            );
            without.iter().for_each(|name| all.extend(["  ", name, "\n"]));
        }
        let mut sections: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
        sections.sort();
        for (names, text) in sections {
            let names: Vec<_> = names.into_iter().collect();
            all.extend([
                "\n",
                &"=".repeat(78),
                "\n",
                &names.join("\n"),
                "\n\n",
                text.trim_end(),
                "\n",
            ]);
        }
        Ok(all)
    }
}

/// The texts beside the manifest of a crate that its licence asks to pass on.
fn notices(folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let is_notice = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|begin| name.starts_with(begin))
    };
    let texts = files.into_iter().filter(is_notice).map(|file| {
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    });
    texts.collect()
}

/// A package URL (purl), which is unique in a bill.
fn reference(id: &Id) -> String {
    format!("pkg:cargo/{}@{}", id.0, id.1)
}

/// A UUID (RFC 9562, version 8) of the content, so that equal materials give equal bytes.
fn serial(components: &[Value]) -> Result<String> {
    let sum = sha256(&serde_json::to_vec(components)?)?;
    Ok(format!(
        "urn:uuid:{}-{}-8{}-a{}-{}",
        &sum[..8],
        &sum[8..12],
        &sum[13..16],
        &sum[17..20],
        &sum[20..32]
    ))
}

/// Name and version of `serde v1.0.0`.
fn id(package: &str) -> Result<Id> {
    let (name, version) = package.split_once(" v").with_context(|| package.to_owned())?;
    Ok((name.to_owned(), version.to_owned()))
}

/// The sums of `Cargo.lock`.
fn checksums(root: &Path) -> Result<BTreeMap<Id, String>> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let lock: Value = basic_toml::from_str(&lock).context("parsing Cargo.lock")?;
    let packages = lock["package"].as_array().context("Cargo.lock has no packages")?;
    let sum = |package: &Value| {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(sum).collect())
}

/// The folder and the repository of each package.
fn metadata(root: &Path) -> Result<BTreeMap<Id, (PathBuf, Option<String>)>> {
    let output = cargo(root, &["metadata", "--format-version=1", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut found = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let (Some(name), Some(version), Some(manifest)) =
            (text("name"), text("version"), text("manifest_path"))
        else {
            bail!("cargo metadata: {package}");
        };
        let folder = Path::new(&manifest).parent().context("a manifest without a folder")?;
        found.insert((name, version), (folder.to_owned(), text("repository")));
    }
    ensure!(!found.is_empty(), "cargo metadata names no package");
    Ok(found)
}

#!/usr/bin/env bash
# Builds the one file that is deployed: `tunnel` as a static-pie executable against musl, from a
# fresh checkout. What is missing is installed by apt when root, else named. The result is proven,
# not assumed: kind of file, no interpreter, size, and a run of the demo where nothing else exists.
#
#   ./build-static.sh        ->  target/static/tunnel and target/static/tunnel.sha256
#   ./build-static.sh --webrtc   the same with data channels of WebRTC, which take 2.7 MB more
#
# With CI=true a proof that cannot run is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

triple=x86_64-unknown-linux-musl
# Answers are compressed: br takes 1.05 MB (0.6 of it tables), zstd 0.28, gzip 0.08. International host
# names take 0.28 MB, hashes of passwords and the log of requests 0.2 MB. HTTP/2 built for speed takes
# 0.44 MB and 0.6 of its former processor time. What a person is told at a terminal (tables by width,
# completion of names, JSON of commands, warnings) takes 0.36 MB. Private services, codes for visitors,
# ICE and QUIC over direct paths take 0.9 MB. `tunnel import` of nine programs, ports of routers,
# certificates between clients, their metrics and several targets take 0.7 MB together. The page for
# browsers takes 0.14 MB, 0.11 of it files of the page. Offers of WebRTC, which this binary refuses in
# words, take 0.02 MB. `tunnel proxy` takes 0.2 MB.
max_bytes=19600000 # the promise of the manual; a commit that raises it says why
webrtc_bytes=2800000 # the share of data channels
out="${CARGO_TARGET_DIR:-target}/static"

say() { printf '%s\n' "build-static: $*"; }
die() { say "$*" >&2; exit 1; }
skip() {
  [ "${CI:-}" != true ] || die "cannot $1"
  say "SKIP $1"
}

# cc: build scripts of the host; musl-gcc: the C part of aws-lc and mimalloc; file: the proof below.
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v musl-gcc >/dev/null || missing+=(musl-tools)
command -v file >/dev/null || missing+=(file)
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "install the counterparts of these Debian packages: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "run: sudo apt-get install --yes --no-install-recommends ${missing[*]}"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" </dev/null
fi
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
  command -v rustup >/dev/null || die "the Rust target $triple is missing and there is no rustup to add it"
  rustup target add "$triple"
fi

# The page for browsers.
bare=wasm32-unknown-unknown
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$bare" ]; then
  command -v rustup >/dev/null || die "the Rust target $bare is missing and there is no rustup to add it"
  rustup target add "$bare"
fi

# RUSTFLAGS would override the flags of the target: the flags here are the point of this script.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
# The addresses that a static-pie corrects at its start are packed (DT_RELR): 200 KB less.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=pic -C link-arg=-Wl,-z,pack-relative-relocs"
# lld, which comes with the Rust toolchain, folds functions with equal code.
lld="$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld"
if [ -x "$lld/ld.lld" ]; then
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS+=" -C link-arg=-B$lld -C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all"
fi
# Fetched first, so that the folder is there.
cargo fetch --locked </dev/null
# Where a crate lay on the machine that built it is nobody's concern, and room.
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS+=" --remap-path-prefix=$registry="
done
export CC_x86_64_unknown_linux_musl="${CC_x86_64_unknown_linux_musl:-musl-gcc}"
# Nothing unwinds through C: a panic ends where C calls Rust. The tables take 0.15 MB.
export CFLAGS_x86_64_unknown_linux_musl="${CFLAGS_x86_64_unknown_linux_musl:-} -fno-asynchronous-unwind-tables -fno-unwind-tables"
# musl's own allocator takes one lock for all threads; mimalloc takes none.
# WebRTC would exceed the size.
features=mimalloc
if [ "${1:-}" = --webrtc ]; then
  features+=,webrtc
  max_bytes=$((max_bytes + webrtc_bytes))
fi
cargo build --locked --release --target "$triple" --package tunnel --no-default-features \
  --features "$features" </dev/null

mkdir -p "$out"
install -m 755 "${CARGO_TARGET_DIR:-target}/$triple/release/tunnel" "$out/tunnel"
# The empty directory that crates/tunnel/Dockerfile copies: nothing in an empty image can make one.
mkdir -p "$out/state"
(cd "$out" && sha256sum tunnel >tunnel.sha256)

kind=$(file --brief "$out/tunnel")
case "$kind" in *"static-pie linked"*) ;; *) die "not static-pie: $kind" ;; esac
linked=$(ldd "$out/tunnel" 2>&1 || true)
case "$linked" in *"statically linked"* | *"not a dynamic executable"*) ;; *) die "needs libraries: $linked" ;; esac
bytes=$(stat --format=%s "$out/tunnel")
[ "$bytes" -lt "$max_bytes" ] || die "$bytes bytes, at most $max_bytes are allowed"

# An empty root: no libc, no /etc, no certificates, no /tmp, no /proc. The user is the user of
# crates/tunnel/Dockerfile, who has no name and no directory to write to.
root=$(mktemp -d)
chmod 755 "$root"
trap 'rm -rf "$root"' EXIT
install -m 755 "$out/tunnel" "$root/tunnel"
if [ "$(id -u)" = 0 ]; then
  in_root=("$(command -v chroot)" --userspec=65532:65532 "$root")
elif unshare --user --map-root-user true 2>/dev/null; then
  in_root=("$(command -v unshare)" --user --map-root-user --root="$root")
else
  in_root=()
fi
if [ ${#in_root[@]} -gt 0 ]; then
  env -i "${in_root[@]}" /tunnel demo --once </dev/null || die "demo --once failed in an empty root"
else
  skip "run the demo in an empty root: neither root nor user namespaces"
fi

say "$out/tunnel: $bytes bytes, $kind"

#!/usr/bin/env bash
# Builds the one file that is deployed: `tunnel` as a static-pie executable against musl, from a
# fresh checkout. What is missing is installed by apt when root, else named. The result is proven,
# not assumed: kind of file, no interpreter, size, and a run of the demo where nothing else exists.
#
#   ./build-static.sh        ->  target/static/tunnel and target/static/tunnel.sha256
#   ./build-static.sh --webrtc   the same with data channels of WebRTC, which take 2.7 MB more
#   ./build-static.sh --arch aarch64   for another processor -> target/static-aarch64
#
# With CI=true a proof that cannot run is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

arch=x86_64
features=mimalloc # musl's own allocator takes one lock for all threads; mimalloc takes none.
while [ $# -gt 0 ]; do
  case "$1" in
    --webrtc) features+=,webrtc ;;
    --arch) arch="${2:-}"; shift ;;
    *) echo "build-static: no such option: $1" >&2; exit 2 ;;
  esac
  shift
done
case "$arch" in
  x86_64) triple=x86_64-unknown-linux-musl ;;
  aarch64) triple=aarch64-unknown-linux-musl zig=aarch64-linux-musl qemu=aarch64 ;;
  armv7) triple=armv7-unknown-linux-musleabihf zig=arm-linux-musleabihf qemu=arm ;;
  *) echo "build-static: no such processor: $arch (x86_64, aarch64, armv7)" >&2; exit 2 ;;
esac
# Answers are compressed: br takes 1.05 MB (0.6 of it tables), zstd 0.28, gzip 0.08. International host
# names take 0.28 MB, hashes of passwords and the log of requests 0.2 MB. HTTP/2 built for speed takes
# 0.44 MB and 0.6 of its former processor time. What a person is told at a terminal (tables by width,
# completion of names, JSON of commands, warnings) takes 0.36 MB. Private services, codes for visitors,
# ICE and QUIC over direct paths take 0.9 MB. `tunnel import` of nine programs, ports of routers,
# certificates between clients, their metrics and several targets take 0.7 MB together. The page for
# browsers takes 0.14 MB, 0.11 of it files of the page. Offers of WebRTC, which this binary refuses in
# words, take 0.02 MB. `tunnel proxy` takes 0.2 MB. Upgrade, supervision, pages and replays take 0.4 MB;
# the console with its pages, `tunnel share`, QR codes, sticky sessions and the difference of two files
# take 0.8 MB together. Idle connections at rest, upgrades of UDP listeners, fields of balancers and
# the waiting line of commands take 0.1 MB. The resolver of names, which finds what the C library of
# this binary does not find, takes less than 0.2 MB. Interfaces by route and kind, zones of link-local
# addresses, broadcast targets, SOCKS 4 and chains of upgrades take 0.23 MB together. Several servers,
# servers from an API or DNS, spread paths, moves and flows that roam take 0.58 MB together; the choice
# of paths by measurement, paths through another server, codes of several servers, metrics and imports
# of several servers 0.41 MB more.
# Interface and source of dials, lists of visitors from files, the drain of targets, the rows of keys
# and the table of metrics take 0.12 MB together. Files that a load reads once, and bounds of lists of
# networks take 0.05 MB together. The nodes of a cluster, with their links and the client of etcd, take
# 1.5 MB; homes of clients, carriers that are passed on, tcp:// between nodes, and the commands and
# the page about a cluster 0.46 MB more.
max_bytes=27000000 # the promise of the manual; a commit that raises it says why
webrtc_bytes=2800000 # the share of data channels
zig_version=0.17.1    # from PyPI: functions of memory, and the C compiler for other processors
target_dir="${CARGO_TARGET_DIR:-target}"
if [ "$arch" = x86_64 ]; then out="$target_dir/static"; else out="$target_dir/static-$arch"; fi

say() { printf '%s\n' "build-static: $*"; }
die() { say "$*" >&2; exit 1; }
skip() {
  [ "${CI:-}" != true ] || die "cannot $1"
  say "SKIP $1"
}

# cc: build scripts of the host; musl-gcc: the C part of aws-lc and mimalloc; file: the proof below.
# zig, which comes from PyPI, has functions of memory, and the headers of musl for every processor.
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v file >/dev/null || missing+=(file)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ "$arch" = x86_64 ]; then
  command -v musl-gcc >/dev/null || missing+=(musl-tools)
  command -v objcopy >/dev/null || missing+=(binutils)
else
  # It runs the proof.
  command -v "qemu-${qemu}-static" >/dev/null || missing+=(qemu-user-static)
fi
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "install the counterparts of these Debian packages: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "run: sudo apt-get install --yes --no-install-recommends ${missing[*]}"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" </dev/null
fi
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
  command -v rustup >/dev/null || die "the Rust target $triple is missing and there is no rustup to add it"
  if ! rustup target add "$triple"; then
    say "the standard library of Rust for $triple cannot be had" >&2
    exit 77
  fi
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
flags="-C target-feature=+crt-static -C relocation-model=pic"
lower="${triple//-/_}"
tools="$(mkdir -p "$target_dir/tools" && cd "$target_dir/tools" && pwd)"
python="$tools/zig/bin/python"
if ! [ -e "$tools/zig/$zig_version" ]; then
  python3 -m venv --clear "$tools/zig"
  "$tools/zig/bin/pip" install --quiet "ziglang==$zig_version" </dev/null ||
    die "ziglang $zig_version of PyPI cannot be installed, and the binary has its functions of memory"
  touch "$tools/zig/$zig_version"
fi
export ZIG_GLOBAL_CACHE_DIR="$tools/zig/cache" ZIG_LOCAL_CACHE_DIR="$tools/zig/cache"
if [ "$arch" = x86_64 ]; then
  flags+=" -C link-arg=-Wl,-z,pack-relative-relocs"
  # lld, which comes with the Rust toolchain, folds functions with equal code.
  lld="$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld"
  if [ -x "$lld/ld.lld" ]; then
    flags+=" -C link-arg=-B$lld -C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all"
  fi
  cc="${CC_x86_64_unknown_linux_musl:-musl-gcc}"
else
  # lld links for every processor; Rust's target has the C library.
  flags+=" -C link-self-contained=yes -C link-arg=-z -C link-arg=pack-relative-relocs -C link-arg=--icf=all"
  export "CARGO_TARGET_${lower^^}_LINKER=rust-lld"
  cc="$tools/zig/cc-$arch"
  # The crate cc passes the triple of Rust, which zig does not know. zig checks code that is not
  # optimised for undefined behaviour at run time, which needs a library.
  cat >"$cc" <<EOF
#!/bin/sh
for word; do
  shift
  case "\$word" in --target=*) ;; *) set -- "\$@" "\$word" ;; esac
done
exec "$python" -m ziglang cc -target $zig -fno-sanitize=all "\$@"
EOF
  chmod 755 "$cc"
fi
# Fetched first, so that the folder is there.
cargo fetch --locked </dev/null
# Where a crate lay on the machine that built it is nobody's concern, and room.
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
  flags+=" --remap-path-prefix=$registry="
done
# musl moves a byte at a time where the regions of memmove overlap or are the same. On x86-64 two
# builds of the functions of zig's compiler-rt take their place, and memory.c chooses between them.
# musl for the other processors has functions by ARM for copies, and they keep it.
if [ "$arch" = x86_64 ]; then
  memory="$tools/memory"
  mkdir -p "$memory/new"
  : >"$memory/new/empty.c"
  for kind in sse2 avx2; do
    cpu=x86_64
    [ "$kind" = sse2 ] || cpu+="+$kind"
    "$python" -m ziglang build-obj -fcompiler-rt -O ReleaseFast -fPIC -fstrip -fno-unwind-tables \
      -target x86_64-linux-musl "-mcpu=$cpu" "$memory/new/empty.c" "-femit-bin=$memory/new/all.o"
    rename=() keep=()
    for name in memcpy memmove memset; do
      rename+=("--redefine-sym=$name=${name}_$kind")
      keep+=("--keep-global-symbol=${name}_$kind")
    done
    objcopy "${rename[@]}" "$memory/new/all.o"
    objcopy "${keep[@]}" "$memory/new/all.o" "$memory/new/$kind.o"
  done
  "$cc" -O2 -fPIC -ffreestanding -ffunction-sections -fno-asynchronous-unwind-tables \
    -c crates/tunnel/static/memory.c -o "$memory/new/memory.o"
  objects=(memory.o sse2.o avx2.o)
  sums=$(cd "$memory/new" && sha256sum "${objects[@]}")
  if [ "$sums" != "$(cat "$memory/sums" 2>/dev/null)" ]; then
    (cd "$memory/new" && "$cc" -static -O1 -fno-builtin "$OLDPWD/crates/tunnel/static/memory_test.c" \
      "${objects[@]}" -o test && ./test) || die "functions of memory are wrong"
    (cd "$memory/new" && mv "${objects[@]}" ..)
    # cargo does not see these objects.
    cargo clean --quiet --release --target "$triple" --package tunnel
    printf '%s\n' "$sums" >"$memory/sums"
  fi
  # The first definition of a symbol is linked, and the C library comes last.
  cat >"$memory/cc" <<EOF
#!/bin/sh
exec cc "$memory/memory.o" "$memory/sse2.o" "$memory/avx2.o" "\$@" "-Wl,-Map=$memory/map"
EOF
  chmod 755 "$memory/cc"
  export "CARGO_TARGET_${lower^^}_LINKER=$memory/cc"
fi
export "CARGO_TARGET_${lower^^}_RUSTFLAGS=$flags" "CC_$lower=$cc"
# Nothing unwinds through C: a panic ends where C calls Rust. The tables take 0.15 MB.
c_flags="CFLAGS_$lower"
export "$c_flags=${!c_flags:-} -fno-asynchronous-unwind-tables -fno-unwind-tables"
# WebRTC would exceed the size.
case "$features" in *webrtc*) max_bytes=$((max_bytes + webrtc_bytes)) ;; esac
cargo build --locked --release --target "$triple" --package tunnel --no-default-features \
  --features "$features" </dev/null

mkdir -p "$out"
install -m 755 "$target_dir/$triple/release/tunnel" "$out/tunnel"
# The empty directory that crates/tunnel/Dockerfile copies: nothing in an empty image can make one.
mkdir -p "$out/state"
(cd "$out" && sha256sum tunnel >tunnel.sha256)
# cargo xtask dist passes the licence on.
[ "$arch" != x86_64 ] || install -m 644 "$tools"/zig/lib/python*/site-packages/ziglang/LICENSE "$out/zig.LICENSE"

kind=$(file --brief "$out/tunnel")
case "$arch $kind" in
  *"static-pie linked"*) ;;
  # Rust makes static programs of other processors for fixed addresses.
  aarch64*"statically linked"* | armv7*"statically linked"*) ;;
  *) die "not static-pie: $kind" ;;
esac
linked=$(ldd "$out/tunnel" 2>&1 || true)
case "$linked" in *"statically linked"* | *"not a dynamic executable"*) ;; *) die "needs libraries: $linked" ;; esac
if [ "$arch" = x86_64 ]; then
  # The code of musl's memmove that moves backwards, from `lea -1(%rdi,%rdx), %rdi` to `rep movsb`.
  backwards=$(printf '\x48\x8d\x7c\x17\xff\x48\x8d\x74\x16\xff\xfd\xf3\xa4')
  libc="$(rustc --print sysroot)/lib/rustlib/$triple/lib/self-contained/libc.a"
  LC_ALL=C grep -qaF "$backwards" "$libc" || die "musl has another memmove: look for its code"
  ! LC_ALL=C grep -qaF "$backwards" "$out/tunnel" || die "memmove is of musl, a byte at a time"
  for name in memcpy memmove memset; do
    ! grep -q "libc\.a($name\.l\?o)" "$memory/map" || die "$name is of musl"
    grep -q "memory\.o:(\.text\.$name)" "$memory/map" || die "$name is not the function of memory.c"
  done
fi
bytes=$(stat --format=%s "$out/tunnel")
# The promise is one for x86-64.
[ "$arch" != x86_64 ] || [ "$bytes" -lt "$max_bytes" ] || die "$bytes bytes, at most $max_bytes are allowed"

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
program=(/tunnel)
if [ "$arch" != x86_64 ]; then
  install -m 755 "$(command -v "qemu-$qemu-static")" "$root/qemu"
  program=(/qemu /tunnel)
fi
if [ ${#in_root[@]} -gt 0 ]; then
  env -i "${in_root[@]}" "${program[@]}" demo --once </dev/null || die "demo --once failed in an empty root"
else
  skip "run the demo in an empty root: neither root nor user namespaces"
fi

say "$out/tunnel: $bytes bytes, $kind"

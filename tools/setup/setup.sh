#!/bin/sh
# Installs what this repository needs and builds its native programs. Idempotent; prints one line per step and, when a
# step fails, the last lines of its log. Needs root only to install Debian packages that are missing.
#
#   sh tools/setup/setup.sh            what running the product needs
#   sh tools/setup/setup.sh --test     and what its tests need
#
# It downloads Debian, npm and Rust packages through their ordinary clients and nothing else. Guest kernels and images
# are made by the daemon, not here.
set -eu
cd -- "$(dirname -- "$0")/../.."

RUN_PACKAGES="qemu-system-x86 qemu-utils ovmf seabios mmdebstrap skopeo nftables iproute2 e2fsprogs xz-utils lz4 zstd cpio ca-certificates"
TEST_PACKAGES="umoci busybox-static docker-registry grub-efi-amd64-bin grub-common dosfstools mtools xorriso genisoimage xfsprogs"
RUST_TARGET=x86_64-unknown-linux-gnu
PACKAGES=$RUN_PACKAGES
APT_LISTS=/var/lib/apt/lists
[ "${1:-}" = --test ] && PACKAGES="$RUN_PACKAGES $TEST_PACKAGES"

mkdir -p .cache
LOG=.cache/setup.log
: >"$LOG"

fail() {
  printf 'setup: %s\n' "$1" >&2
  exit 1
}

now_ms() { date +%s%3N; }

# step NAME COMMAND...: runs it into the log, prints name and seconds, or the log's end. Commands run in the condition
# of an `if`, where `set -e` does not count: each says itself what must not fail.
step() {
  name=$1
  shift
  started=$(now_ms)
  printf '== %s\n' "$name" >>"$LOG"
  if "$@" >>"$LOG" 2>&1 </dev/null; then
    spent=$(($(now_ms) - started))
    printf 'setup: %-16s %4d.%d s\n' "$name" $((spent / 1000)) $((spent % 1000 / 100))
  else
    printf 'setup: %s failed; the end of %s:\n' "$name" "$LOG" >&2
    tail -n 30 "$LOG" >&2
    exit 1
  fi
}

# version_at_least HAVE WANT, both like 1.85
version_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

check_tools() {
  missing=""
  command -v git >/dev/null || missing="$missing
  git: apt-get install git"
  command -v gcc >/dev/null || missing="$missing
  gcc (links the Rust programs): apt-get install gcc libc6-dev"
  node_version=$(node --version 2>/dev/null | sed 's/^v//') || node_version=""
  { [ -n "$node_version" ] && version_at_least "$node_version" 20; } || missing="$missing
  node 20 or newer (found: ${node_version:-none}): from your distribution, version manager or nodejs.org; it only starts npm, which brings its own"
  command -v npm >/dev/null || missing="$missing
  npm: it comes with node, or apt-get install npm"
  cargo_version=$(sh tools/setup/cargo.sh --version 2>/dev/null | sed 's/^cargo \([0-9.]*\).*/\1/') || cargo_version=""
  { [ -n "$cargo_version" ] && version_at_least "$cargo_version" 1.85; } || missing="$missing
  cargo 1.85 or newer (found: ${cargo_version:-none}): with rustup (rustup.rs), or from your distribution; under another HOME set RUSTUP_HOME"
  [ -z "$missing" ] || { echo "these are missing:$missing"; return 1; }
}

list_missing_packages() {
  dpkg-query -W -f='${db:Status-Status} ${Package}\n' $PACKAGES 2>/dev/null | sed -n 's/^installed //p' | sort >.cache/installed.txt || true
  printf '%s\n' $PACKAGES | sort | comm -23 - .cache/installed.txt | tr '\n' ' '
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  lock="-o DPkg::Lock::Timeout=300"
  # an old list may do; only when it does not, fetch a new one
  apt-get $lock install -y --no-install-recommends $1 || {
    apt-get $lock update
    apt-get $lock install -y --no-install-recommends $1
  }
}

check_packages() {
  command -v dpkg-query >/dev/null || {
    command -v qemu-system-x86_64 >/dev/null || fail "this is no Debian: install by hand what Debian calls: $PACKAGES"
    return 0
  }
  wanted=$(list_missing_packages)
  # images and kernels are made from Debian packages, which apt must know of
  if [ -z "$wanted" ]; then
    ls "$APT_LISTS" 2>/dev/null | grep -q _Packages || [ "$(id -u)" != 0 ] || step "package lists" apt-get -o DPkg::Lock::Timeout=300 update
    return 0
  fi
  [ "$(id -u)" = 0 ] || fail "run as root: apt-get install --no-install-recommends $wanted"
  step "debian packages" install_packages "$wanted"
}

npm_fingerprint() {
  { cat package-lock.json; uname -m; } | sha256sum | cut -d' ' -f1
}

# Under `npm run` the PATH begins with node_modules/.bin, whose node must not be the one that replaces node_modules.
npm_install() {
  outer_path=$(printf '%s' "$PATH" | tr ':' '\n' | grep -v '/node_modules/.bin$' | paste -sd:)
  PATH=$outer_path npm ci --no-audit --no-fund || return 1
  ./node_modules/.bin/node --version || return 1
  npm_fingerprint >node_modules/.fluxvm-setup
}

# The guest programs have no standard library or are static, which build scripts survive only with an explicit target;
# each is built by itself, lest one member's features of a shared dependency reach another.
build_native() {
  for member in native/*/Cargo.toml; do
    crate=$(basename -- "$(dirname -- "$member")")
    case $crate in
      guest-agent | test-guest | probe-guest) target="--target $RUST_TARGET" ;;
      *) target="" ;;
    esac
    (cd "native/$crate" && sh ../../tools/setup/cargo.sh build --release --locked $target) || return 1
  done
}

[ "$(uname -m)" = x86_64 ] || fail "only x86-64 Linux is served"
started_all=$(now_ms)
step "tools" check_tools
check_packages
if [ "$(cat node_modules/.fluxvm-setup 2>/dev/null || true)" != "$(npm_fingerprint)" ]; then
  step "npm packages" npm_install
fi
step "native programs" build_native
spent=$(($(now_ms) - started_all))
printf 'setup: %-16s %4d.%d s\n' "done" $((spent / 1000)) $((spent % 1000 / 100))

#!/bin/sh
# Runs cargo, also where HOME is not the home that rustup was installed for: rustup's cargo is a proxy that looks for
# its toolchains under RUSTUP_HOME or HOME, so RUSTUP_HOME is derived from where the proxy lies.
set -eu
if ! cargo --version >/dev/null 2>&1 && [ -z "${RUSTUP_HOME:-}" ]; then
  proxy=$(command -v cargo || true)
  toolchains=$(dirname -- "$(dirname -- "$(dirname -- "${proxy:-/x/x/x}")")")/.rustup
  [ -d "$toolchains" ] && export RUSTUP_HOME="$toolchains"
fi
exec cargo "$@"

//! Links `fluxvm-guest-agent` without a C library: our own `_start`, no start files, fixed address.
fn main() {
    for arg in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--gc-sections", "-Wl,-z,noexecstack", "-Wl,--build-id=none"] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

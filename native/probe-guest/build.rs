//! Links the guest at a fixed address without a C runtime.
fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let flags = ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,max-page-size=4096", "-Wl,-z,norelro"];
    for flag in flags {
        println!("cargo:rustc-link-arg-bins={flag}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{dir}/link.ld");
    println!("cargo:rerun-if-changed=link.ld");
}

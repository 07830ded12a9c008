//! The unprivileged one-shot mode that unpacks image layers.

/// Entry point of `fluxvm-host-helper unpack ARGS`; the result is the exit code.
pub fn main(args: &[String]) -> i32 {
    let _ = args;
    eprintln!("unpack: not built yet");
    2
}

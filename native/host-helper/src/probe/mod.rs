//! `probe NAME`: filled below.
pub fn main(args: &[String]) -> i32 {
    let _ = args;
    2
}

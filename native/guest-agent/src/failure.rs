//! Errors as the host sees them: a code of `packages/core/src/errors/catalogue.ts` and a message for people.

use alloc::format;
use alloc::string::String;

use linux_raw_sys::errno;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new("REQUEST_INVALID", message)
    }
}

/// What a failed file operation means, from the kernel's number.
pub fn file_failure(number: i32, what: &str, path: &[u8]) -> Failure {
    let code = match number as u32 {
        errno::ENOENT => "GUEST_FILE_NOT_FOUND",
        errno::EEXIST | errno::ENOTEMPTY => "GUEST_FILE_EXISTS",
        errno::EACCES | errno::EPERM | errno::EROFS => "GUEST_FILE_DENIED",
        errno::EISDIR | errno::ENOTDIR | errno::ELOOP | errno::ENXIO | errno::EINVAL | errno::ENAMETOOLONG | errno::EXDEV | errno::EBUSY => {
            "GUEST_FILE_INVALID"
        }
        errno::ENOSPC | errno::EDQUOT => "GUEST_OUT_OF_SPACE",
        _ => "GUEST_FILE_IO",
    };
    Failure::new(code, format!("Cannot {what} {}: {}", String::from_utf8_lossy(path), describe(number)))
}

/// The usual English of an error number.
pub fn describe(number: i32) -> String {
    let text = match number as u32 {
        errno::EPERM => "operation not permitted",
        errno::ENOENT => "no such file or directory",
        errno::EIO => "input/output error",
        errno::E2BIG => "argument list too long",
        errno::ENOEXEC => "not an executable format",
        errno::EAGAIN => "resource temporarily unavailable",
        errno::ENOMEM => "out of memory",
        errno::EACCES => "permission denied",
        errno::EBUSY => "device or resource busy",
        errno::EEXIST => "it exists",
        errno::EXDEV => "not on the same file system",
        errno::ENODEV => "no such device",
        errno::ENOTDIR => "not a directory",
        errno::EISDIR => "is a directory",
        errno::EINVAL => "invalid argument",
        errno::EMFILE | errno::ENFILE => "too many open files",
        errno::ETXTBSY => "file is being written",
        errno::EFBIG => "file too large",
        errno::ENOSPC => "no space left on device",
        errno::EROFS => "read-only file system",
        errno::EPIPE => "broken pipe",
        errno::ENAMETOOLONG => "name too long",
        errno::ENOSYS => "not supported by the kernel",
        errno::ENOTEMPTY => "directory not empty",
        errno::ELOOP => "too many symbolic links",
        errno::EOPNOTSUPP => "operation not supported",
        errno::EDQUOT => "quota exceeded",
        errno::ETIMEDOUT => "timed out",
        _ => return format!("error {number}"),
    };
    String::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_file_error_has_its_code() {
        let code = |number: u32| file_failure(number as i32, "open", b"/x").code;
        assert_eq!(code(errno::ENOENT), "GUEST_FILE_NOT_FOUND");
        assert_eq!(code(errno::EROFS), "GUEST_FILE_DENIED");
        assert_eq!(code(errno::ENOSPC), "GUEST_OUT_OF_SPACE");
        assert_eq!(code(errno::EIO), "GUEST_FILE_IO");
        assert_eq!(file_failure(2, "open", b"/x").message, "Cannot open /x: no such file or directory");
        assert_eq!(describe(4000), "error 4000");
    }
}

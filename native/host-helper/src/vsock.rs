//! Makes a guest's AF_VSOCK port reachable over a Unix socket: every connection taken is joined to a new one to
//! (cid, port). A bridge lives as long as this process or until it is closed; the daemon asks for it again.
use crate::failure::{Failure, Outcome};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAX_CONNECTIONS: usize = 64;

/// Listens at `path` (which must not exist) and returns at once.
pub fn bridge(cid: u32, port: u32, path: String) -> Outcome<()> {
    bridge_to(path, move || connect(cid, port))
}

fn bridge_to(path: String, connect: impl Fn() -> Outcome<UnixStream> + Send + Sync + 'static) -> Outcome<()> {
    let connect = Arc::new(connect);
    let listener = UnixListener::bind(&path).map_err(|e| Failure::io("vsock", "listen", &e))?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The path is gone: the bridge was closed, and this connection was the call to notice.
            if !std::path::Path::new(&path).exists() {
                return;
            }
            if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
                open.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (open, connect) = (open.clone(), connect.clone());
            std::thread::spawn(move || {
                if let Ok(guest) = connect() {
                    join(stream, guest);
                }
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Ok(())
}

pub fn close(path: &str) -> Outcome<()> {
    let waker = UnixStream::connect(path);
    std::fs::remove_file(path).map_err(|e| Failure::io("vsock", "remove socket", &e))?;
    drop(waker);
    Ok(())
}

/// A connected stream; read, write and shutdown work on it as on any stream socket.
fn connect(cid: u32, port: u32) -> Outcome<UnixStream> {
    // SAFETY: no memory is passed; a result of zero or more is a descriptor that nobody else owns.
    let fd = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Failure::last("vsock", "socket"));
    }
    // SAFETY: see above.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: sockaddr_vm is plain data.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as u16;
    address.svm_cid = cid;
    address.svm_port = port;
    let size = std::mem::size_of::<libc::sockaddr_vm>() as u32;
    // SAFETY: the address has the size passed.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) } != 0 {
        return Err(Failure::last("vsock", "connect"));
    }
    Ok(UnixStream::from(socket))
}

fn join(client: UnixStream, guest: UnixStream) {
    let (Ok(client_in), Ok(guest_in)) = (client.try_clone(), guest.try_clone()) else { return };
    let up = std::thread::spawn(move || pump(client_in, guest));
    pump(guest_in, client);
    let _ = up.join();
}

fn pump(mut from: UnixStream, mut to: UnixStream) {
    let mut buffer = vec![0u8; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_streams_carry_both_ways_and_pass_the_end_on() {
        let (mut client, client_far) = UnixStream::pair().unwrap();
        let (mut guest, guest_far) = UnixStream::pair().unwrap();
        let joined = std::thread::spawn(move || join(client_far, guest_far));
        client.write_all(b"ping").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = String::new();
        guest.read_to_string(&mut got).unwrap();
        guest.write_all(b"pong").unwrap();
        drop(guest);
        let mut back = String::new();
        client.read_to_string(&mut back).unwrap();
        joined.join().unwrap();
        assert_eq!((got.as_str(), back.as_str()), ("ping", "pong"));
    }

    fn socket_path(name: &str) -> String {
        std::env::temp_dir().join(format!("fluxvm-bridge-{}-{name}", std::process::id())).to_str().unwrap().to_string()
    }

    #[test]
    fn a_bridge_to_nowhere_ends_its_connections_and_closes() {
        let path = socket_path("none");
        let refuse = || Err(Failure::errno("vsock", libc::ENODEV, "connect"));
        bridge_to(path.clone(), refuse).unwrap();
        assert_eq!(bridge_to(path.clone(), refuse).unwrap_err().code, "EADDRINUSE");
        let mut end = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut end).unwrap();
        assert_eq!(end, "");
        close(&path).unwrap();
        assert!(UnixStream::connect(&path).is_err());
        assert_eq!(close(&path).unwrap_err().code, "ENOENT");
    }

    #[test]
    fn each_connection_gets_its_own_guest_stream() {
        let path = socket_path("echo");
        let echo = || {
            let (near, mut far) = UnixStream::pair().unwrap();
            std::thread::spawn(move || {
                let mut text = String::new();
                far.read_to_string(&mut text).unwrap();
                far.write_all(text.as_bytes()).unwrap();
            });
            Ok(near)
        };
        bridge_to(path.clone(), echo).unwrap();
        for word in ["one", "two"] {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(word.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut back = String::new();
            client.read_to_string(&mut back).unwrap();
            assert_eq!(back, word);
        }
        close(&path).unwrap();
    }
}

//! Messages with open files between two processes, over a socket that keeps message borders.
#![expect(
    unsafe_code,
    reason = "the standard library cannot pass descriptors over a socket"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Room for the ancillary data of as many descriptors as any message carries.
const FILES_MAX: usize = 8;

/// Ancillary data needs the alignment of its header.
#[repr(C, align(8))]
struct Room([u8; 128]);

/// Two connected sockets; when one is closed the other reads the end.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has room for the two numbers.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call made both, and nobody else knows them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Sends one message with open files.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    assert!(
        files.len() <= FILES_MAX,
        "a message carries at most {FILES_MAX} files"
    );
    let mut room = Room([0; 128]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut header = empty_header(&mut part);
    if !files.is_empty() {
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        attach(&mut header, &mut room, &numbers);
    }
    loop {
        // SAFETY: the header points at `bytes` and `room`, which outlive the call.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        interrupted_or(io::Error::last_os_error())?;
    }
}

/// Receives one message into `buffer` and its files into `files`, waiting for it. An end is an error.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut room = Room([0; 128]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut header = empty_header(&mut part);
    header.msg_control = room.0.as_mut_ptr().cast();
    header.msg_controllen = room.0.len();
    loop {
        // SAFETY: the header points at `buffer` and `room`, which outlive the call.
        let got =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(got) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                detach(&header, files);
                if header.msg_flags & libc::MSG_TRUNC != 0 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                return Ok(length);
            }
            Err(_) => interrupted_or(io::Error::last_os_error())?,
        }
    }
}

fn empty_header(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all fields are numbers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header
}

fn attach(header: &mut libc::msghdr, room: &mut Room, numbers: &[RawFd]) {
    let bytes = u32::try_from(mem::size_of_val(numbers)).expect("a handful of numbers");
    header.msg_control = room.0.as_mut_ptr().cast();
    // SAFETY: only computes lengths.
    let (length, space) = unsafe { (libc::CMSG_LEN(bytes), libc::CMSG_SPACE(bytes)) };
    header.msg_controllen = usize::try_from(space).expect("fits the room");
    // SAFETY: `room` is aligned and large enough for FILES_MAX descriptors, so there is a first header.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = usize::try_from(length).expect("fits the room");
        ptr::copy_nonoverlapping(
            numbers.as_ptr().cast(),
            libc::CMSG_DATA(first),
            mem::size_of_val(numbers),
        );
    }
}

fn detach(header: &libc::msghdr, files: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel has filled the room; the macros walk within `msg_controllen`.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(header);
        while let Some(one) = item.as_ref() {
            if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_RIGHTS {
                let empty = usize::try_from(libc::CMSG_LEN(0)).unwrap_or(usize::MAX);
                let count = one.cmsg_len.saturating_sub(empty) / mem::size_of::<RawFd>();
                let data = libc::CMSG_DATA(item);
                for place in 0..count {
                    let number: [u8; size_of::<RawFd>()] = data
                        .add(place * size_of::<RawFd>())
                        .cast::<[u8; 4]>()
                        .read();
                    files.push(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)));
                }
            }
            item = libc::CMSG_NXTHDR(header, item);
        }
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn interrupted_or(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(())
    } else {
        Err(error)
    }
}

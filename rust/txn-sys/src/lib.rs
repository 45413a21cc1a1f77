//! The system calls txn needs beyond the standard library, behind safe functions.
//!
//! `rustix` offers most of them without `unsafe`. This crate is the one place where an `unsafe`
//! block may be written, with its `// SAFETY:` sentence.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

/// Keeps SIGPIPE from the calling thread: sendfile(2) to a client that has left fails, and raises
/// it too. A program may have the signal end the process, and other calls have a flag against it.
pub fn block_sigpipe() {
    // SAFETY: the set is the thread's own, and is made empty before it is used.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut());
    }
}

/// Registers functions for every fork of this process: one before it, on the forking thread, one
/// after it in the process, and one in the child. They may do no more than a child of threads may.
///
/// # Errors
/// There is no memory for it.
pub fn at_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: the functions are there for ever, and safe to call at any time.
    let code = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Sends up to `len` bytes of `file` from `offset` to `socket` without copying them here.
///
/// Returns how many bytes went; 0 means `offset` is at the end of the file. The file's own
/// position is neither used nor moved.
///
/// # Errors
/// `WouldBlock` when the socket takes nothing now, `Interrupted` never (it is retried),
/// and any other error of sendfile(2).
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut position = offset;
    Ok(rustix::io::retry_on_intr(|| {
        rustix::fs::sendfile(socket, file, Some(&mut position), len)
    })?)
}

/// Forces a file's bytes, and the size needed to read them back, to the disk.
///
/// # Errors
/// The errors of fdatasync(2). After an error the kernel may have dropped the bytes and
/// forgotten
/// it: a later success proves nothing, so the caller has to stop promising.
pub fn sync_data(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Returns freed memory to the system: blocks of `bytes` and more at once, and the free end of each
/// thread's heap as soon as it is as long.
///
/// By itself glibc raises both limits to the largest block that was ever freed, up to 32 and
/// 64 MiB for each heap. Elsewhere this does nothing.
pub fn keep_freed_memory_below(bytes: u32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;

        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;

        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }

        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        for parameter in [M_MMAP_THRESHOLD, M_TRIM_THRESHOLD] {
            // SAFETY: it takes two numbers, and locks the data that it changes.
            unsafe { mallopt(parameter, bytes) };
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}

/// Forces a directory's entries to the disk: files made, renamed or removed in it.
///
/// # Errors
/// The errors of open(2) or fsync(2).
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a file for reading that has to be a plain file; never waits, as opening a FIFO would.
///
/// # Errors
/// `InvalidInput` names its kind; else those of stat(2) or open(2).
pub fn open_plain(path: &Path) -> io::Result<File> {
    require_plain(&std::fs::metadata(path)?)?; // before opening: that alone moves some devices
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    require_plain(&file.metadata()?)?;
    Ok(file)
}

fn require_plain(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let is = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let message = format!("it is {is}, not a file");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

/// Where a file's next stored bytes begin, at or after a position; `None` if only a hole follows.
/// Where the file system cannot tell, everything is stored. Moves the file's own position.
///
/// # Errors
/// The errors of lseek(2).
pub fn next_stored(file: &File, position: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(position)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL) => Ok(Some(position)),
        Err(error) => Err(error.into()),
    }
}

/// True if an error says that the process or the system has no file descriptor left.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = rustix::io::Errno::from_io_error(error);
    matches!(
        code,
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

/// Raises this process's soft limit of open files to the hard one; returns the limit.
///
/// # Errors
/// The errors of setrlimit(2); the limit is unchanged then.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        limits.current = limits.maximum;
        setrlimit(Resource::Nofile, limits)?;
    }
    Ok(limits.current.unwrap_or(u64::MAX)) // `None`: there is no limit
}

/// Keeps an open file's inode, with the kernel's notes of its failed writes, in memory without a
/// descriptor.
///
/// It is a mapping of one byte that nobody can read: a mapping holds the open file it was made
/// of. Cost: a mapping of the process's `vm.max_map_count` (65,530 by default).
#[derive(Debug)]
pub struct Pin {
    address: usize,
}

impl Pin {
    /// Pins an open file, which may be closed then.
    ///
    /// # Errors
    /// The errors of mmap(2): there are too many mappings, or the file system has none.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an address where nothing is mapped, and without any
        // permission the mapping makes no memory accessible.
        let mapped = unsafe { mmap(ptr::null_mut(), 1, ProtFlags::empty(), flags, file, 0) };
        let address = mapped?.expose_provenance();
        Ok(Self { address })
    }

    /// Reports, once, that bytes of the file could not be written since it was opened: also
    /// failures that others were told of meanwhile.
    ///
    /// # Errors
    /// The errors of `sync_data`.
    pub fn take_failure(&self) -> io::Result<()> {
        let address = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the mapping is this value's own and there until it is dropped; msync reads and
        // writes no memory through it.
        Ok(rustix::io::retry_on_intr(|| unsafe {
            msync(address, 1, MsyncFlags::SYNC)
        })?)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let address = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the mapping is this value's own, and nobody has a reference into it.
        let _ = unsafe { munmap(address, 1) };
    }
}

//! A relay's long-term keys on disk.
//!
//! File names and formats are tor's, so that a relay can move between tor and FlashFlow with its
//! identity: the folder `keys` of a tor relay works unchanged. Tor's other keys in it are ignored.
//! Two programs must not use the same keys at the same time.

mod format;
#[cfg(test)]
mod tests;

use crate::family::{self, FamilyIds};
use files::Access;
use link::{IssueError, LongTermKeys};
use onion::identity::RsaId;
use onion::keys::{Ed25519Key, RsaKey};
use rand::CryptoRng;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// The RSA identity key.
const RSA: &str = "secret_id_key";
/// The Ed25519 identity key.
const ED25519: &str = "ed25519_master_id_secret_key";
/// Its public key, which reveals corruption of the secret key.
const ED25519_PUBLIC: &str = "ed25519_master_id_public_key";
/// The ntor onion key.
const ONION: &str = "secret_onion_key_ntor";
/// The previous onion key.
const OLD_ONION: &str = "secret_onion_key_ntor.old";
/// The longest key file, in bytes.
const LEN_MAX: u64 = 4096;
/// Room for the longest file, and for noticing its end.
const ROOM: usize = 4096 + 32;

/// Why the keys are unusable.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// An I/O error.
    #[error("machine: cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// The operation, a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The folder belongs to another user.
    #[error(
        "configuration: the folder of keys `{}` belongs to user ID {owner}, but this process runs as {we}. Run the relay as that \
         user, or change its owner with `chown -R {we}`", .path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
        /// The user ID of this process.
        we: u32,
    },
    /// A secret is readable by others.
    #[error(
        "configuration: the secret key `{}` is accessible to others (mode {mode:03o}). If nobody has \
         copied it, close it with `chmod 600`", .path.display()
    )]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file does not contain a key of the expected kind.
    #[error(
        "configuration: the key file `{}` is damaged: {reason}. Restore it from a copy; without \
         one, remove all keys in the folder, and the relay starts with a new identity",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// Only one of the identity keys exists. Authorities pin them to each other.
    #[error(
        "configuration: `{}` exists, but `{missing}` next to it does not exist. Authorities refuse an \
         identity of which one half has changed: restore the file from a copy, or remove all keys \
         in the folder for a new identity", .present.display()
    )]
    Incomplete {
        /// The existing key.
        present: PathBuf,
        /// The name of the missing one.
        missing: &'static str,
    },
    /// The family key does not exist.
    #[error(
        "configuration: `family_ids`: no key of the family {id} is in `{}`. Copy the file that `tor --keygen-family` \
         has made there, under a name that ends with `.secret_family_key`", .folder.display()
    )]
    NoFamilyKey {
        /// The family, by its public key.
        id: String,
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// No keys could be generated.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

impl KeyError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Reads the keys in a folder. Generates and stores them, and creates the folder, if there are
/// none.
///
/// An onion key that is missing next to an identity is generated, since it rotates anyway. The
/// previous onion key is read if it exists; [`forget_old_onion_key`] removes it.
///
/// # Errors
/// [`KeyError`] if keys are unreadable, corrupt, incomplete or readable by others, or cannot be
/// written.
pub fn open(folder: &Path, rng: &mut impl CryptoRng) -> Result<LongTermKeys, KeyError> {
    make_folder(folder)?;
    let path = |name: &str| folder.join(name);
    let secret = |name: &str| read(&path(name), true);
    let damaged = |name: &str| {
        let path = path(name);
        move |reason| KeyError::Damaged { path, reason }
    };

    let mut made = LongTermKeys::generate(rng)?;
    let (rsa, ed25519) = match read_identity(folder)? {
        Some(identity) => identity,
        None => {
            let ed25519 = &made.ed25519;
            // The RSA key last: an interruption before leaves the folder incomplete, not different.
            write(&path(ED25519), &format::ed25519(ed25519))?;
            write(&path(ED25519_PUBLIC), &format::ed25519_public(ed25519))?;
            let rsa = format::rsa(&made.rsa).map_err(|problem| KeyError::Io {
                action: "encode",
                path: path(RSA),
                source: io::Error::other(problem),
            })?;
            write(&path(RSA), rsa.as_bytes())?;
            (made.rsa, made.ed25519)
        }
    };
    match secret(ONION)? {
        Some(onion) => made.onion_secret = format::read_onion(&onion).map_err(damaged(ONION))?,
        None => write(&path(ONION), &format::onion(&made.onion_secret))?,
    }
    let previous_onion_secret = match secret(OLD_ONION)? {
        // An interrupted rotation leaves the same key in both files.
        Some(old) => Some(format::read_onion(&old).map_err(damaged(OLD_ONION))?)
            .filter(|old| *old != made.onion_secret),
        None => None,
    };
    Ok(LongTermKeys { rsa, ed25519, previous_onion_secret, ..made })
}

/// Reads the keys in a folder as [`open`] does, and family keys, but writes nothing. Returns the fingerprint; `None` if a relay
/// would generate a new identity.
///
/// # Errors
/// [`KeyError`], as for [`open`].
pub fn check(folder: &Path, families: &FamilyIds) -> Result<Option<RsaId>, KeyError> {
    if !folder.is_dir() {
        return Ok(None);
    }
    check_owner(folder)?;
    let identity = read_identity(folder)?;
    for name in [ONION, OLD_ONION] {
        let path = folder.join(name);
        if let Some(onion) = read(&path, true)? {
            let damaged = |reason| KeyError::Damaged { path, reason };
            format::read_onion(&onion).map_err(damaged)?;
        }
    }
    family::open(folder, families)?;
    Ok(identity.map(|(rsa, _)| rsa.id()))
}

/// The identity keys in a folder; `None` if there are none.
fn read_identity(folder: &Path) -> Result<Option<(RsaKey, Ed25519Key)>, KeyError> {
    let path = |name: &str| folder.join(name);
    let damaged = |name: &str| {
        let path = path(name);
        move |reason| KeyError::Damaged { path, reason }
    };
    match (read(&path(RSA), true)?, read(&path(ED25519), true)?) {
        (Some(rsa), Some(ed25519)) => {
            let rsa = format::read_rsa(&rsa).map_err(damaged(RSA))?;
            let ed25519 = format::read_ed25519(&ed25519).map_err(damaged(ED25519))?;
            if let Some(public) = read(&path(ED25519_PUBLIC), false)? {
                let public =
                    format::read_ed25519_public(&public).map_err(damaged(ED25519_PUBLIC))?;
                if public != ed25519.id().0 {
                    return Err(damaged(ED25519)("its public key is another one"));
                }
            }
            Ok(Some((rsa, ed25519)))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(KeyError::Incomplete { present: path(RSA), missing: ED25519 }),
        (None, Some(_)) => Err(KeyError::Incomplete { present: path(ED25519), missing: RSA }),
    }
}

/// When the onion key was generated, in Unix seconds: the modification time of its file. A copy
/// without timestamps has a new key.
///
/// # Errors
/// [`KeyError::Io`] if the file is missing or has no date.
pub fn onion_key_made(folder: &Path) -> Result<u64, KeyError> {
    let path = folder.join(ONION);
    let made = fs::metadata(&path).and_then(|metadata| metadata.modified());
    let made = made.map_err(KeyError::io("look at the key", &path))?;
    Ok(made.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Sets when the onion key was generated, in Unix seconds.
///
/// # Errors
/// [`KeyError::Io`] if the file cannot be changed.
pub(crate) fn set_onion_key_made(folder: &Path, unix_s: u64) -> Result<(), KeyError> {
    let path = folder.join(ONION);
    let made = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    let set = fs::File::open(&path).and_then(|file| file.set_modified(made));
    set.map_err(KeyError::io("set the date of the key", &path))
}

/// Generates a new onion key, and keeps the present one as the previous.
///
/// # Errors
/// [`KeyError::Io`]. The keys are then unchanged, in memory and on disk.
pub fn rotate_onion_key(
    folder: &Path,
    keys: &mut LongTermKeys,
    rng: &mut impl CryptoRng,
) -> Result<(), KeyError> {
    let mut fresh = [0; 32];
    rng.fill_bytes(&mut fresh);
    // In this order a key in use is never lost.
    write(&folder.join(OLD_ONION), &format::onion(&keys.onion_secret))?;
    write(&folder.join(ONION), &format::onion(&fresh))?;
    keys.previous_onion_secret = Some(std::mem::replace(&mut keys.onion_secret, fresh));
    Ok(())
}

/// Removes the previous onion key.
///
/// # Errors
/// [`KeyError::Io`] if its file cannot be removed.
pub fn forget_old_onion_key(folder: &Path, keys: &mut LongTermKeys) -> Result<(), KeyError> {
    let path = folder.join(OLD_ONION);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(KeyError::io("remove the key", &path)(error));
        }
        _ => {}
    }
    keys.previous_onion_secret = None;
    Ok(())
}

/// Reads a family key.
pub(crate) fn read_family_key(path: &Path) -> Result<Ed25519Key, KeyError> {
    let damaged = |reason| KeyError::Damaged { path: path.to_owned(), reason };
    let file = read(path, true)?.ok_or("it is gone").map_err(damaged)?;
    format::read_family(&file).map_err(damaged)
}

fn make_folder(folder: &Path) -> Result<(), KeyError> {
    if folder.is_dir() {
        return look_at_folder(folder);
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(KeyError::io("create the folder of keys", folder))
}

/// The metadata of a folder of this user. As in C tor, the folder of another user is refused.
fn check_owner(folder: &Path) -> Result<fs::Metadata, KeyError> {
    let metadata = fs::metadata(folder).map_err(KeyError::io("look at the folder", folder))?;
    let (owner, we) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != we {
        return Err(KeyError::Foreign { path: folder.to_owned(), owner, we });
    }
    Ok(metadata)
}

/// As in C tor, group and other permissions are removed.
fn look_at_folder(folder: &Path) -> Result<(), KeyError> {
    let metadata = check_owner(folder)?;
    if metadata.mode() & 0o077 != 0 {
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder, closed).map_err(KeyError::io("close the folder", folder))?;
    }
    Ok(())
}

/// A file's content, which is wiped when it is dropped; `None` if it does not exist.
fn read(path: &Path, is_secret: bool) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(KeyError::io("read the key", path))?,
    };
    let metadata = file.metadata().map_err(KeyError::io("look at the key", path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if is_secret && mode & 0o077 != 0 {
        return Err(KeyError::OpenToOthers { path: path.to_owned(), mode });
    }
    // With room for all, it does not grow, which would leave a copy.
    let mut content = Zeroizing::new(Vec::with_capacity(ROOM));
    file.take(LEN_MAX).read_to_end(&mut content).map_err(KeyError::io("read the key", path))?;
    Ok(Some(content))
}

fn write(path: &Path, content: &[u8]) -> Result<(), KeyError> {
    files::replace(path, content, Access::Owner).map_err(KeyError::io("write the key", path))
}

//! Names of datasets in object storage, and of the folders of their copies.

use object_store::path::Path as Key;
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteName {
    pub(super) bucket: String,
    prefix: Key,
}

impl RemoteName {
    /// Reads what follows `s3://`.
    ///
    /// # Errors
    /// The bucket or the prefix has characters or parts that S3 does not allow.
    pub fn new(text: &str) -> Result<Self, String> {
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let is_known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_known) {
            return Err(format!(
                "`{bucket}` is not the name of a bucket, which has 3 to 63 lower-case letters, digits, dots and hyphens: use s3://BUCKET/PREFIX"
            ));
        }
        let wrong = |problem: &dyn fmt::Display| {
            format!("`{prefix}` is not a prefix of objects: {problem}")
        };
        let parsed = Key::parse(prefix).map_err(|error| wrong(&error))?;
        if parsed.as_ref().len() > 800 {
            return Err(wrong(&"it is longer than 800 bytes"));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: parsed })
    }

    /// The key of an object of the dataset.
    pub(super) fn key(&self, folder: &str, name: &str) -> Key {
        let key =
            if folder.is_empty() { self.prefix.clone() } else { self.prefix.clone().join(folder) };
        key.join(name)
    }

    /// The URL of an object, for messages.
    pub(super) fn url(&self, key: &Key) -> String {
        format!("s3://{}/{key}", self.bucket)
    }

    /// The name of the folder of the dataset's copies. Two servers may have buckets of one name.
    pub(super) fn folder(&self, endpoint: &str) -> String {
        let digest = Sha256::digest(format!("{endpoint}\n{self}"));
        format!("{}-{}", self.bucket, hex::encode(&digest[..8]))
    }
}

impl fmt::Display for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

/// The folder of all copies, by the rules of the XDG Base Directory Specification.
pub(super) fn default_cache(
    xdg_cache_home: Option<OsString>,
    home: Option<OsString>,
) -> Option<PathBuf> {
    // The specification ignores relative paths.
    let xdg = xdg_cache_home.map(PathBuf::from).filter(|path| path.is_absolute());
    let cache =
        xdg.or_else(|| Some(PathBuf::from(home.filter(|home| !home.is_empty())?).join(".cache")))?;
    Some(cache.join("flashflow").join("datasets"))
}

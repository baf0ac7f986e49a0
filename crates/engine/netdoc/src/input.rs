//! Recognizes compressed files, archives and documents of another kind.
//!
//! Directory caches compress answers with zlib (`deflate`), gzip, LZMA or Zstandard (dir-spec.txt,
//! section 4.1). Archives of documents are distributed as gzip, xz or bzip2. [`plain`] decompresses
//! gzip and zlib and rejects the other formats by name. [`describe`] names what a file contains
//! instead of the expected document.

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::{self, Read};

/// Limit on the decompressed length. It bounds the memory that a small file can make the reader
/// allocate. No single document comes near it, but a month of all server descriptors of the public
/// network would exceed it.
pub const PLAIN_MAX: u64 = 1 << 30;

/// Why a file contains no readable document.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The format is known but not supported.
    #[error("it is {0}, which is not read here: {1}")]
    Unsupported(&'static str, &'static str),
    /// The compressed data is corrupt or truncated.
    #[error("it is {format}, and cannot be decompressed ({source}): fetch it again")]
    Broken {
        /// The compression.
        format: &'static str,
        /// The decoder's error.
        source: io::Error,
    },
    /// The decompressed data exceeds [`PLAIN_MAX`].
    #[error(
        "it is {0}, and has more than 1 GiB when it is decompressed: split it into smaller files"
    )]
    TooLong(&'static str),
}

/// A container format, recognized by its first bytes.
struct Format {
    name: &'static str,
    remedy: &'static str,
    is_it: fn(&[u8]) -> bool,
}

const FORMATS: [Format; 9] = [
    Format {
        name: GZIP,
        remedy: "decompress it first: gunzip FILE",
        is_it: |bytes| bytes.starts_with(&[0x1f, 0x8b]),
    },
    Format { name: ZLIB, remedy: "decompress it first: zlib-flate -uncompress", is_it: is_zlib },
    Format {
        name: "compressed with xz",
        remedy: "decompress it first: xz -d FILE",
        is_it: |bytes| bytes.starts_with(b"\xfd7zXZ\0"),
    },
    Format {
        name: "compressed with zstd",
        remedy: "decompress it first: zstd -d FILE",
        is_it: |bytes| bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
    },
    Format {
        name: "compressed with bzip2",
        remedy: "decompress it first: bzip2 -d FILE",
        is_it: |bytes| bytes.starts_with(b"BZh") && bytes.get(4..10) == Some(b"1AY&SY"),
    },
    // `x-tor-lzma` of directory caches: properties, then the dictionary size, a power of two of at
    // least 4 KiB.
    Format {
        name: "compressed with LZMA",
        remedy: "decompress it first: xz --format=lzma -d FILE",
        is_it: |bytes| bytes.starts_with(&[0x5d, 0, 0]) && bytes.len() > 13,
    },
    Format {
        name: "a zip archive",
        remedy: "extract the document first: unzip FILE",
        is_it: |bytes| bytes.starts_with(b"PK\x03\x04"),
    },
    Format {
        name: "compressed with compress",
        remedy: "decompress it first: gunzip FILE",
        is_it: |bytes| bytes.starts_with(&[0x1f, 0x9d]),
    },
    Format {
        name: "a tar archive",
        remedy: "extract the document first: tar -xf FILE",
        is_it: |bytes| bytes.get(257..262) == Some(b"ustar"),
    },
];

const GZIP: &str = "compressed with gzip";
const ZLIB: &str = "compressed with zlib";

/// The header of a zlib stream (RFC 1950, section 2.2): method 8, a window of at most 32 KiB, a
/// checksum modulo 31, no dictionary.
fn is_zlib(bytes: &[u8]) -> bool {
    let [first, second, ..] = bytes else { return false };
    let check = u16::from_be_bytes([*first, *second]);
    // A text may begin with `x^`, but no document does; and its third byte would be text, too.
    first & 0x0f == 8 && first >> 4 == 7 && check % 31 == 0 && second & 0x20 == 0
}

/// The compression or archive format of a file, as a phrase after "it is"; `None` for plain data.
#[must_use]
pub fn container(bytes: &[u8]) -> Option<&'static str> {
    FORMATS.iter().find(|format| (format.is_it)(bytes)).map(|format| format.name)
}

/// The document in `bytes`, decompressed if it is gzip (of any number of members) or zlib.
///
/// # Errors
/// [`InputError`] if it is in another container, corrupt, or too long. Plain data is never
/// rejected.
pub fn plain(mut bytes: Vec<u8>) -> Result<Vec<u8>, InputError> {
    // A compressed archive is rejected for its content; no program compresses a document more than
    // twice.
    for _ in 0..3 {
        let Some(format) = FORMATS.iter().find(|format| (format.is_it)(&bytes)) else {
            return Ok(bytes);
        };
        bytes = match format.name {
            GZIP => inflate(format.name, MultiGzDecoder::new(&bytes[..]))?,
            ZLIB => inflate(format.name, ZlibDecoder::new(&bytes[..]))?,
            name => return Err(InputError::Unsupported(name, format.remedy)),
        };
    }
    Err(InputError::Unsupported("compressed several times", "decompress it first"))
}

fn inflate(format: &'static str, decoder: impl Read) -> Result<Vec<u8>, InputError> {
    let mut text = Vec::new();
    let read = decoder.take(PLAIN_MAX + 1).read_to_end(&mut text);
    read.map_err(|source| InputError::Broken { format, source })?;
    if text.len() as u64 > PLAIN_MAX {
        return Err(InputError::TooLong(format));
    }
    Ok(text)
}

/// The first of [`BEGINNINGS`] are those of Tor's documents.
const TOR_DOCUMENTS: usize = 8;

/// Prefixes of the first line after annotations, with the kind of document.
const BEGINNINGS: [(&[u8], &str); 14] = [
    (b"network-status-version ", "a consensus or a vote"),
    (b"router ", "server descriptors"),
    (b"onion-key", "microdescriptors, which have no bandwidths, no dates and no fingerprints"),
    (b"extra-info ", "extra-info documents"),
    (b"dir-key-certificate-version ", "certificates of authorities"),
    (b"network-status-diff-version ", "a difference between consensuses"),
    (b"hs-descriptor ", "an onion-service descriptor"),
    (b"bridge-", "a document of bridges"),
    (b"<", "an HTML or XML page"),
    (b"{", "JSON"),
    (b"[", "JSON"),
    (b"HTTP/", "an HTTP answer with its header"),
    (b"\x89PNG", "a PNG image"),
    (b"%PDF", "a PDF document"),
];

/// What a file is instead of the expected document, as a phrase after "it is" or "it has". `None`
/// for unknown text.
#[must_use]
pub fn describe(bytes: &[u8]) -> Option<&'static str> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Some("empty");
    }
    if let Some(container) = container(bytes) {
        return Some(container);
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Some("preceded by a byte-order mark (EF BB BF)");
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Some("encoded as UTF-16");
    }
    let text = without_annotations(bytes);
    let text = text.get(text.iter().take_while(|byte| byte.is_ascii_whitespace()).count()..);
    let text = text.unwrap_or_default();
    let known = BEGINNINGS.iter().find(|(beginning, _)| text.starts_with(beginning));
    let known = known.map(|(_, what)| *what);
    let is_binary = || {
        text.iter()
            .take(1000)
            .any(|byte| *byte == 0 || (*byte < b' ' && !byte.is_ascii_whitespace()))
    };
    known.or_else(|| is_binary().then_some("binary data"))
}

/// The kind of Tor's document that begins with this line, as a phrase after "it is".
pub(crate) fn document(line: &[u8]) -> Option<&'static str> {
    let known = BEGINNINGS[..TOR_DOCUMENTS].iter().find(|(start, _)| line.starts_with(start));
    known.map(|(_, what)| *what)
}

/// A document without the annotations before it: lines that begin with `@`, as in tor's own files
/// and CollecTor's archives.
#[must_use]
pub fn without_annotations(mut bytes: &[u8]) -> &[u8] {
    while bytes.first() == Some(&b'@') {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        bytes = &bytes[end..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use proptest::prelude::*;
    use std::io::Write as _;

    const TEXT: &[u8] = b"network-status-version 3\nvote-status consensus\n";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    fn zlib(text: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn gzip_and_zlib_are_decompressed_and_plain_text_is_left_alone() {
        assert_eq!(plain(TEXT.to_vec()).expect("plain"), TEXT);
        assert_eq!(plain(Vec::new()).expect("plain"), b"");
        assert_eq!(plain(gzip(TEXT)).expect("gzip"), TEXT);
        let members = [gzip(&TEXT[..9]), gzip(&TEXT[9..])].concat();
        assert_eq!(plain(members).expect("two members"), TEXT);
        for level in [0, 1, 6, 9] {
            assert_eq!(plain(zlib(TEXT, level)).expect("zlib"), TEXT, "level {level}");
        }
        assert_eq!(plain(zlib(&gzip(TEXT), 6)).expect("both"), TEXT);
    }

    #[test]
    fn other_compressions_are_rejected_by_name_and_damage_is_reported() {
        let tar = [vec![0; 257], b"ustar\0".to_vec(), vec![0; 300]].concat();
        for (bytes, name) in [
            (b"\xfd7zXZ\0\0\x04".to_vec(), "xz"),
            (b"\x28\xb5\x2f\xfd\0\0".to_vec(), "zstd"),
            (b"BZh91AY&SY\0\0".to_vec(), "bzip2"),
            (b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0".to_vec(), "LZMA"),
            (b"PK\x03\x04\0\0".to_vec(), "zip"),
            (tar.clone(), "tar"),
            (gzip(&tar), "tar"),
        ] {
            let error = plain(bytes).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains("first"), "{error}");
        }
        let cut = gzip(TEXT)[..20].to_vec();
        let error = plain(cut).expect_err("cut").to_string();
        assert!(error.contains("gzip") && error.contains("fetch it again"), "{error}");
    }

    #[test]
    fn the_error_names_an_unexpected_kind_of_document() {
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"\n \n", "empty"),
            (b"<!DOCTYPE html>\n<html>", "HTML"),
            (b"\n<html>", "HTML"),
            (b"@type microdescriptor 1.0\nonion-key\n", "microdescriptors"),
            (b"@type extra-info 1.0\nextra-info a B\n", "extra-info"),
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"\xef\xbb\xbf1700000000\n", "byte-order mark"),
            (b"\xff\xfe1\x007\0", "UTF-16"),
            (b"\x00\x01\x02", "binary"),
            (TEXT, "consensus"),
        ] {
            let found = describe(bytes).unwrap_or_default();
            assert!(found.contains(expected), "{expected}: {found}");
        }
        assert_eq!(describe(b"1700000000\nversion=1.4.0\n"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (describe(&bytes), without_annotations(&bytes), plain(bytes.clone()));
        }

        #[test]
        fn text_is_never_mistaken_for_compressed_data(text in "[a-z@<0-9][ -~\n]{0,300}") {
            prop_assume!(!text.starts_with("x^") && !text.starts_with("BZh"));
            prop_assert_eq!(plain(text.clone().into_bytes()).expect("plain"), text.into_bytes());
        }
    }
}

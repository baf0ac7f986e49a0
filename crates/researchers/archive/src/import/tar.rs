//! Reads tar archives: ustar, with the extensions of pax and GNU.
//!
//! It differs from general readers in what hostile and damaged archives need. Names and extensions take bounded memory. Zeros end an
//! archive, but not the file: another archive may follow, and anything else after them is an error, not the silent end.

use std::io::{self, Read};

const BLOCK: usize = 512;
/// Maximum size of a long name or an extended header.
const EXTENSION_MAX: u64 = 1 << 20;
/// Maximum number of characters of a name that are kept.
const NAME_MAX: usize = 200;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A file whose holes are left out.
    Sparse,
    /// A folder, link or device.
    Other,
}

/// A member of an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name, for messages.
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) kind: Kind,
}

/// An archive, or several in a row.
pub(super) struct Tar<R> {
    from: R,
    /// Bytes of the current member that are not yet read.
    left: u64,
    /// Bytes after it, up to the next block.
    padding: u64,
}

impl<R: Read> Tar<R> {
    pub(super) const fn new(from: R) -> Self {
        Self { from, left: 0, padding: 0 }
    }

    /// Moves to the next member.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let (mut name, mut size, mut is_sparse) = (None, None, false);
        loop {
            self.skip()?;
            let Some(block) = self.block()? else {
                return match (&name, size) {
                    (None, None) => Ok(None),
                    _ => Err(wrong("the tar ends after the extended header of a member")),
                };
            };
            if block.iter().all(|byte| *byte == 0) {
                continue;
            }
            check_sum(&block)?;
            let field = |from: usize, to: usize| block.get(from..to).unwrap_or_default();
            let own_size = number(field(124, 136)).ok_or_else(|| wrong("a header has no size"))?;
            self.follow(own_size);
            match block[156] {
                b'x' | b'X' => {
                    for (key, value) in pax(&self.extension()?) {
                        match key {
                            b"size" => {
                                let text = std::str::from_utf8(value).ok();
                                size = text.and_then(|digits| digits.parse().ok());
                            }
                            b"path" => name = Some(value.to_vec()),
                            _ => is_sparse |= key.starts_with(b"GNU.sparse."),
                        }
                    }
                }
                b'L' => name = Some(self.extension()?),
                b'K' | b'g' => {}
                flag => {
                    let size = size.unwrap_or(own_size);
                    if flag == b'S' {
                        let mut is_continued = block[482] != 0;
                        while is_continued {
                            let block = self
                                .block()?
                                .ok_or_else(|| wrong("the tar ends within a header"))?;
                            is_continued = block[504] != 0;
                        }
                    }
                    self.follow(size);
                    let kind = match flag {
                        0 | b'0' | b'7' if !is_sparse => Kind::File,
                        0 | b'0' | b'7' | b'S' => Kind::Sparse,
                        _ => Kind::Other,
                    };
                    let has_prefix = field(257, 263) == b"ustar\0" && block[345] != 0;
                    let name = name.unwrap_or_else(|| match has_prefix {
                        true => [text(field(345, 500)), b"/", text(field(0, 100))].concat(),
                        false => text(field(0, 100)).to_vec(),
                    });
                    let name =
                        String::from_utf8_lossy(text(&name)).chars().take(NAME_MAX).collect();
                    return Ok(Some(Member { name, size, kind }));
                }
            }
        }
    }

    /// The content of the current member.
    pub(super) const fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Content of this size follows.
    const fn follow(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(std::mem::take(&mut self.padding));
        self.left = 0;
        match io::copy(&mut self.from.by_ref().take(rest), &mut io::sink())? == rest {
            true => Ok(()),
            false => Err(wrong("the tar ends within a member")),
        }
    }

    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = Vec::with_capacity(BLOCK);
        self.from.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        match block.as_slice().try_into() {
            Ok(block) => Ok(Some(block)),
            Err(_) if block.is_empty() => Ok(None),
            Err(_) => Err(wrong("the tar ends within a header, or other data follow it")),
        }
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.left > EXTENSION_MAX {
            return Err(wrong("the name or extended header of a member is longer than 1 MiB"));
        }
        let mut content = Vec::new();
        self.content().read_to_end(&mut content)?;
        Ok(content)
    }
}

/// The content of a member, which may end early.
pub(super) struct Content<'a, R>(&'a mut Tar<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = self.0.from.by_ref().take(self.0.left).read(room)?;
        self.0.left -= len as u64;
        Ok(len)
    }
}

fn wrong(problem: &str) -> io::Error {
    io::Error::other(problem.to_owned())
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number: octal digits or, with the first bit set, binary.
fn number(field: &[u8]) -> Option<u64> {
    if let Some((first @ 0x80.., rest)) = field.split_first() {
        let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        let is_small = *first == 0x80 && high.iter().all(|byte| *byte == 0);
        return is_small.then(|| low.try_into().ok().map(u64::from_be_bytes)).flatten();
    }
    let digits = std::str::from_utf8(text(field)).ok()?.trim();
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

fn check_sum(block: &[u8; BLOCK]) -> io::Result<()> {
    let place = 148..156;
    let sum = |value: fn(u8) -> i64| -> i64 {
        let byte = |(at, byte): (usize, &u8)| value(if place.contains(&at) { b' ' } else { *byte });
        block.iter().enumerate().map(byte).sum()
    };
    // Old programs added signed bytes.
    let sums = [sum(i64::from), sum(|byte| i64::from(byte.cast_signed()))];
    let noted = number(&block[place.clone()]).and_then(|sum| i64::try_from(sum).ok());
    match noted.is_some_and(|noted| sums.contains(&noted)) {
        true => Ok(()),
        false => Err(wrong(
            "no header of a tar member where one must follow: the file is damaged, or other data follow the tar",
        )),
    }
}

/// The records of an extended header: `LENGTH KEY=VALUE`, each with a newline.
fn pax(mut header: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut records = Vec::new();
    while let Some(space) = header.iter().position(|byte| *byte == b' ') {
        let len = std::str::from_utf8(&header[..space]).ok().and_then(|len| len.parse().ok());
        let Some((record, rest)) = len.and_then(|len| header.split_at_checked(len)) else { break };
        let Some(record) = record.get(space + 1..) else { break };
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        if let Some(equals) = record.iter().position(|byte| *byte == b'=') {
            records.push((&record[..equals], &record[equals + 1..]));
        }
        header = rest;
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(name: &str, flag: u8, size: &[u8; 12]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(size);
        block[156] = flag;
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn padded(content: &[u8]) -> Vec<u8> {
        let mut blocks = content.to_vec();
        blocks.resize(content.len().next_multiple_of(BLOCK), 0);
        blocks
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(Member, String)>> {
        let mut tar = Tar::new(bytes);
        let mut found = Vec::new();
        while let Some(member) = tar.next()? {
            let mut content = String::new();
            tar.content().read_to_string(&mut content)?;
            found.push((member, content));
        }
        Ok(found)
    }

    #[test]
    fn sizes_stand_in_headers_of_three_kinds() {
        let zero = b"00000000000\0";
        let extension = b"12 path=a/b\n9 size=3\n";
        let size = format!("{:011o}\0", extension.len());
        let by_pax = [
            &header("pax", b'x', size.as_bytes().try_into().unwrap())[..],
            &padded(extension),
            &header("short", b'0', zero),
            &padded(b"abc"),
        ];
        let binary = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let by_binary = [&header("binary", 0, &binary)[..], &padded(b"de")];
        let archive = [by_pax.concat(), vec![0; 1024], by_binary.concat(), vec![0; 3072]].concat();
        let member = |name: &str, size| Member { name: name.to_owned(), size, kind: Kind::File };
        let expected =
            [(member("a/b", 3), "abc".to_owned()), (member("binary", 2), "de".to_owned())];
        assert_eq!(read(&archive).unwrap(), expected);
        // What follows the archives is not their silent end.
        let error = read(&[&archive[..], b"junk"].concat()).unwrap_err().to_string();
        assert!(error.contains("other data follow"), "{error}");
        let error = read(&[&archive[..], &[1; BLOCK]].concat()).unwrap_err().to_string();
        assert!(error.contains("other data follow"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_loop(
            block in proptest::collection::vec(any::<u8>(), 0..2000), flag: u8, size in any::<[u8; 12]>(),
        ) {
            let _ = read(&block);
            let _ = read(&[&header("a", flag, &size)[..], &block].concat());
        }
    }
}

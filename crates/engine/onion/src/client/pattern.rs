use alloc::vec::Vec;

/// Bytes that anybody can generate from a seed, and verify from any offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Different seeds give different bytes.
    pub seed: u64,
}

impl Pattern {
    /// The eight bytes at eight times `number`.
    const fn word(self, number: u64) -> [u8; 8] {
        let mut mixed = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    }

    /// Fills `out` with the bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let skipped = usize::try_from(offset % 8).unwrap_or(0);
        let (head, rest) = out.split_at_mut(((8 - skipped) % 8).min(out.len()));
        head.copy_from_slice(&self.word(offset / 8)[skipped..][..head.len()]);
        for (number, words) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            words.copy_from_slice(&self.word(number)[..words.len()]);
        }
    }

    /// Whether `bytes` are those from `offset` on.
    #[must_use]
    pub fn matches(self, offset: u64, bytes: &[u8]) -> bool {
        let mut expected = [0; 512];
        (offset..).step_by(expected.len()).zip(bytes.chunks(expected.len())).all(|(at, bytes)| {
            let expected = &mut expected[..bytes.len()];
            self.fill(at, expected);
            expected == bytes
        })
    }
}

/// The request of a client to a [`Server`](super::Server) at the beginning of a connection: 24 bytes, three
/// big-endian numbers. The upload follows. The server sends the download immediately; after a complete and
/// correct upload it sends eight more bytes, the upload's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The seed of the [`Pattern`] in both directions.
    pub seed: u64,
    /// Bytes to the client, without the final eight.
    pub download_bytes: u64,
    /// Bytes to the server, without the request.
    pub upload_bytes: u64,
}

impl Transfer {
    /// The length of the request.
    pub const REQUEST_LEN: usize = 24;
    /// The length of the receipt after the download.
    pub const RECEIPT_LEN: usize = 8;

    /// A download of this number of bytes.
    #[must_use]
    pub const fn download(seed: u64, bytes: u64) -> Self {
        Self { seed, download_bytes: bytes, upload_bytes: 0 }
    }

    /// An upload of this number of bytes.
    #[must_use]
    pub const fn upload(seed: u64, bytes: u64) -> Self {
        Self { seed, download_bytes: 0, upload_bytes: bytes }
    }

    /// The request.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::REQUEST_LEN] {
        let mut bytes = Vec::with_capacity(Self::REQUEST_LEN);
        for number in [self.seed, self.download_bytes, self.upload_bytes] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let mut request = [0; Self::REQUEST_LEN];
        request.copy_from_slice(&bytes);
        request
    }

    /// Reads a request.
    #[must_use]
    pub fn parse(request: &[u8; Self::REQUEST_LEN]) -> Self {
        let number = |place: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&request[place * 8..][..8]);
            u64::from_be_bytes(bytes)
        };
        Self { seed: number(0), download_bytes: number(1), upload_bytes: number(2) }
    }

    /// Writes the client's data from `offset` on; returns the number of bytes written.
    pub(super) fn fill_request(&self, offset: u64, out: &mut [u8]) -> usize {
        let request = self.encode();
        let pattern_at = request.len() as u64;
        self.fill(
            offset,
            &Parts { fixed: &request, fixed_at: 0, pattern_at, pattern_bytes: self.upload_bytes },
            out,
        )
    }

    /// Writes the server's data from `offset` on, with the receipt only if the whole upload has arrived.
    pub(super) fn fill_response(&self, offset: u64, has_upload: bool, out: &mut [u8]) -> usize {
        let receipt = self.upload_bytes.to_be_bytes();
        let receipt = if has_upload { &receipt[..] } else { &[] };
        let pattern_bytes = self.download_bytes;
        self.fill(
            offset,
            &Parts { fixed: receipt, fixed_at: pattern_bytes, pattern_at: 0, pattern_bytes },
            out,
        )
    }

    fn fill(&self, mut offset: u64, parts: &Parts<'_>, out: &mut [u8]) -> usize {
        let Parts { fixed, fixed_at, pattern_at, pattern_bytes } = *parts;
        let mut filled = 0;
        while filled < out.len() {
            let out = &mut out[filled..];
            let within = |at: u64, len: u64| (at..at.saturating_add(len)).contains(&offset);
            let len = if within(fixed_at, fixed.len() as u64) {
                let fixed = &fixed[usize::try_from(offset - fixed_at).unwrap_or(0)..];
                let len = fixed.len().min(out.len());
                out[..len].copy_from_slice(&fixed[..len]);
                len
            } else if within(pattern_at, pattern_bytes) {
                let left = pattern_bytes - (offset - pattern_at);
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
                Pattern { seed: self.seed }.fill(offset - pattern_at, &mut out[..len]);
                len
            } else {
                break;
            };
            offset += len as u64;
            filled += len;
        }
        filled
    }

    /// Whether `bytes` are the server's data from `offset` on.
    pub(super) fn matches_response(&self, offset: u64, bytes: &[u8]) -> bool {
        let in_pattern = self.download_bytes.saturating_sub(offset);
        let in_pattern = usize::try_from(in_pattern).unwrap_or(usize::MAX).min(bytes.len());
        let (pattern, receipt) = bytes.split_at(in_pattern);
        let at = usize::try_from((offset + in_pattern as u64).saturating_sub(self.download_bytes));
        let expected = self.upload_bytes.to_be_bytes();
        let expected = expected.get(at.unwrap_or(usize::MAX)..).unwrap_or_default();
        Pattern { seed: self.seed }.matches(offset, pattern)
            && (receipt.is_empty() || expected.starts_with(receipt))
    }

    /// Bytes that the server sends in all.
    pub(super) const fn response_bytes(&self) -> u64 {
        self.download_bytes.saturating_add(Self::RECEIPT_LEN as u64)
    }

    /// Bytes that the client sends in all.
    pub(super) const fn request_bytes(&self) -> u64 {
        self.upload_bytes.saturating_add(Self::REQUEST_LEN as u64)
    }
}

/// The layout of one direction's data: fixed bytes and a stretch of the pattern, each from its offset on.
struct Parts<'a> {
    fixed: &'a [u8],
    fixed_at: u64,
    pattern_at: u64,
    pattern_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pattern_is_independent_of_fragmentation(
            seed: u64, offset in 0u64..100, cuts in prop::collection::vec(1usize..700, 1..20),
        ) {
            let pattern = Pattern { seed };
            let mut whole = vec![0; cuts.iter().sum()];
            pattern.fill(offset, &mut whole);
            let mut at = 0;
            for cut in cuts {
                let mut piece = vec![0; cut];
                pattern.fill(offset + at as u64, &mut piece);
                prop_assert_eq!(&piece[..], &whole[at..at + cut]);
                prop_assert!(pattern.matches(offset + at as u64, &piece));
                piece[cut / 2] ^= 1;
                prop_assert!(!pattern.matches(offset + at as u64, &piece));
                at += cut;
            }
        }

        #[test]
        fn extreme_requests_never_overflow(
            numbers in prop::array::uniform3(prop::sample::select(vec![0, 1, u64::MAX / 2, u64::MAX - 8, u64::MAX])),
            offset in prop::sample::select(vec![0, 24, u64::MAX / 2]),
        ) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            let transfer = Transfer::parse(&bytes.try_into().expect("24 bytes"));
            let mut out = vec![0; 600];
            for has_upload in [false, true] {
                prop_assert!(transfer.fill_response(offset, has_upload, &mut out) <= out.len());
            }
            prop_assert!(transfer.fill_request(offset, &mut out) <= out.len());
            prop_assert!(transfer.request_bytes() >= 24 && transfer.response_bytes() >= 8);
            let _ = transfer.matches_response(offset, &out);
        }

        #[test]
        fn client_and_server_interpret_a_request_alike(
            seed: u64, download_bytes in 0u64..2000, upload_bytes in 0u64..2000, cut in 1usize..900,
        ) {
            let transfer = Transfer { seed, download_bytes, upload_bytes };
            prop_assert_eq!(Transfer::parse(&transfer.encode()), transfer);
            let mut out = vec![0; cut];
            let (mut offset, mut request) = (0, vec![]);
            loop {
                let len = transfer.fill_request(offset, &mut out);
                if len == 0 { break }
                request.extend_from_slice(&out[..len]);
                offset += len as u64;
            }
            prop_assert_eq!(offset, transfer.request_bytes());
            prop_assert_eq!(&request[..24], &transfer.encode()[..]);
            let pattern = Pattern { seed };
            prop_assert!(pattern.matches(0, &request[24..]));
            let mut offset = 0;
            loop {
                let len = transfer.fill_response(offset, true, &mut out);
                if len == 0 { break }
                prop_assert!(transfer.matches_response(offset, &out[..len]));
                let mut wrong = out[..len].to_vec();
                wrong[len / 2] ^= 4;
                prop_assert!(!transfer.matches_response(offset, &wrong));
                offset += len as u64;
            }
            prop_assert_eq!(offset, transfer.response_bytes());
            prop_assert!(!transfer.matches_response(offset, &[0]));
        }
    }
}

use super::{Link, Model, Node, Pair};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use netdoc::RsaId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Version of the format.
const VERSION: u32 = 1;
/// Limit on the uncompressed length: protects against decompression bombs.
const UNPACKED_MAX: u64 = 256 << 20;
/// Limits on relays and links.
const NODES_MAX: usize = 50_000;
const LINKS_MAX: usize = 1_000_000;

/// Why bytes are not a model.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Invalid or truncated gzip.
    #[error("not a complete gzip file: {0}")]
    Packing(std::io::Error),
    /// Longer than any network needs.
    #[error("too long for a model of any network")]
    TooLong,
    /// Invalid JSON.
    #[error("not a model of a network: {0}")]
    Malformed(serde_json::Error),
    /// Unsupported version.
    #[error("it is of format {0}, and this program reads format {VERSION}")]
    Version(u32),
}

#[derive(Serialize, Deserialize)]
struct Written {
    flashflow_model: u32,
    made_unix_s: u64,
    nodes: Vec<WrittenNode>,
    links: Vec<WrittenLink>,
}

#[derive(Serialize, Deserialize)]
struct WrittenNode {
    relay: RsaId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry_rtt_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throughput_kb_s: Option<f64>,
    circuits: u32,
    failed: u32,
}

#[derive(Serialize, Deserialize)]
struct WrittenLink {
    between: [RsaId; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rtt_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throughput_kb_s: Option<f64>,
}

/// Serializes a model as JSON, compressed with gzip.
///
/// # Errors
/// None occur in memory; the compressor's interface has one.
pub fn write(model: &Model) -> std::io::Result<Vec<u8>> {
    let node = |(relay, node): (&RsaId, &Node)| WrittenNode {
        relay: *relay,
        entry_rtt_ms: node.entry_rtt_ms,
        throughput_kb_s: node.throughput_kb_s,
        circuits: node.circuits,
        failed: node.failed,
    };
    let link = |(pair, link): (&Pair, &Link)| WrittenLink {
        between: pair.ends().map(|end| *end),
        rtt_ms: link.rtt_ms,
        throughput_kb_s: link.throughput_kb_s,
    };
    let written = Written {
        flashflow_model: VERSION,
        made_unix_s: model.made_unix_s,
        nodes: model.nodes.iter().map(node).collect(),
        links: model.links.iter().map(link).collect(),
    };
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&serde_json::to_vec(&written)?)?;
    packer.finish()
}

/// Reads the output of [`write`](write()). Implausible values are dropped.
///
/// # Errors
/// [`FileError`] if the bytes are not a model.
pub fn read(bytes: &[u8]) -> Result<Model, FileError> {
    let mut text = Vec::new();
    let mut unpacker = GzDecoder::new(bytes).take(UNPACKED_MAX + 1);
    unpacker.read_to_end(&mut text).map_err(FileError::Packing)?;
    if text.len() as u64 > UNPACKED_MAX {
        return Err(FileError::TooLong);
    }
    let written: Written = serde_json::from_slice(&text).map_err(FileError::Malformed)?;
    if written.flashflow_model != VERSION {
        return Err(FileError::Version(written.flashflow_model));
    }
    if written.nodes.len() > NODES_MAX || written.links.len() > LINKS_MAX {
        return Err(FileError::TooLong);
    }
    let node = |written: WrittenNode| {
        let WrittenNode { relay, entry_rtt_ms, throughput_kb_s, circuits, failed } = written;
        (relay, Node { entry_rtt_ms, throughput_kb_s, circuits, failed })
    };
    let link = |written: WrittenLink| {
        let WrittenLink { between: [a, b], rtt_ms, throughput_kb_s } = written;
        (Pair::new(a, b), Link { rtt_ms, throughput_kb_s })
    };
    let nodes: BTreeMap<RsaId, Node> = written.nodes.into_iter().map(node).collect();
    let links: BTreeMap<Pair, Link> = written.links.into_iter().map(link).collect();
    Ok(Model::new(written.made_unix_s, nodes, links))
}

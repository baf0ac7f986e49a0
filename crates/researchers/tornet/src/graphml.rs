//! GraphML: graphs with attributes, the format of TGen's configuration.

use roxmltree::{Document, Node};
use std::collections::BTreeMap;

/// Attributes: names and values.
pub(crate) type Attributes = BTreeMap<String, String>;

/// A graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<(String, Attributes)>,
    /// Source, target, attributes.
    pub(crate) edges: Vec<(String, String, Attributes)>,
}

impl Graph {
    /// # Errors
    /// If the text is malformed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let all = |name: &'static str| {
            document.descendants().filter(move |descendant| descendant.tag_name().name() == name)
        };
        let keys: BTreeMap<&str, &str> = all("key")
            .filter_map(|key| Some((key.attribute("id")?, key.attribute("attr.name")?)))
            .collect();
        let mut graph = Self::default();
        for node in all("node") {
            let id = node.attribute("id").ok_or("a node without an id")?;
            graph.nodes.push((id.into(), attributes(&keys, node)));
        }
        for edge in all("edge") {
            let source = edge.attribute("source").ok_or("an edge without a source")?;
            let target = edge.attribute("target").ok_or("an edge without a target")?;
            graph.edges.push((source.into(), target.into(), attributes(&keys, edge)));
        }
        Ok(graph)
    }
}

fn attributes(keys: &BTreeMap<&str, &str>, node: Node<'_, '_>) -> Attributes {
    let data = node.children().filter(|child| child.tag_name().name() == "data");
    data.filter_map(|child| {
        let name = keys.get(child.attribute("key")?)?;
        Some(((*name).to_string(), child.text().unwrap_or_default().trim().to_string()))
    })
    .collect()
}

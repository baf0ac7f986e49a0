//! JSON Schemas of what the commands of a program print with `--json`.

use crate::error::Error;
use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use terminal::{End, Exit, Output};

/// Print the JSON Schema of a command's lines with --json.
///
/// Without a name, the command lists the names of all schemas. Lines may get more fields in later versions. A field that is required
/// now will not be removed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow schema
  flashflow schema measure > measure.schema.json
  flashflow-lab schema experiment > experiment.schema.json

Exit status: 0 done; 2 there is no such schema, or wrong arguments.")]
pub struct SchemaOptions {
    /// Name of a schema, such as that of the command.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// A schema, with the command whose lines it describes, such as `bwfile-check`.
pub type Schemas = &'static [(&'static str, fn() -> Schema)];

/// The list of all schemas, with `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Names<'a> {
    Schemas { names: Vec<&'a str> },
}

/// A line of one of two kinds. It exists only as a schema.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, title = "Line", description = "A line of one of these kinds")]
pub enum Either<A, B> {
    /// A line of the command.
    One(A),
    /// Any other line.
    Other(B),
}

/// The schema of the lines of a command: its own, and those of its end.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Schema {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    generator.into_root_schema_for::<Either<T, End>>()
}

impl SchemaOptions {
    /// Prints a schema, or the names of all.
    ///
    /// # Errors
    /// There is no schema of that name.
    pub fn run(&self, schemas: Schemas, output: &Output) -> Result<Exit, Error> {
        let names = || schemas.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let Some(wanted) = &self.name else {
            output.result(names().join("\n"), || Names::Schemas { names: names() });
            return Ok(Exit::Done);
        };
        let found = schemas.iter().find(|(name, _)| name == wanted);
        let (_, schema) = found.ok_or_else(|| {
            Error::Usage(format!("no schema {wanted}; there are: {}", names().join(", ")))
        })?;
        let schema = schema();
        let text = serde_json::to_string_pretty(&schema)?;
        output.result(text, || schema);
        Ok(Exit::Done)
    }
}

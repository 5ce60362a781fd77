//! `ringctl document operations`: what there is to operate.

use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, plain_table};
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// `document operations`.
#[derive(Args, Debug)]
pub struct OperationsArguments {
    /// Only this one.
    operation: Option<String>,
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// One operation.
#[derive(Serialize, Debug)]
struct Shown {
    name: String,
    summary: String,
    /// A JSON Schema; null: its application does not tell it.
    parameters: Value,
    /// Null: there is none.
    example: Value,
}

#[derive(Serialize, Debug)]
struct AllShown {
    operations: Vec<Shown>,
}

impl Shown {
    fn of(info: v1::OperationInfo) -> anyhow::Result<Self> {
        let v1::OperationInfo { name, summary, parameters, example } = info;
        let read = |text: &str, what: &str| match text {
            "" => Ok(Value::Null),
            text => serde_json::from_str(text)
                .with_context(|| format!("the {what} of operation {name} is no JSON")),
        };
        let parameters = read(&parameters, "schema")?;
        let example = read(&example, "example")?;
        Ok(Self { name, summary, parameters, example })
    }
}

/// Shows operations.
pub async fn operations(
    client: &Client,
    it: &OperationsArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let mut all = client.documents().operations(it.timeout).await?;
    if let Some(name) = &it.operation {
        let names: Vec<String> = all.iter().map(|it| it.name.clone()).collect();
        all.retain(|it| it.name == *name);
        if all.is_empty() {
            let problem = format!("{name:?} is no operation; there are {}", names.join(", "));
            return Err(super::usage(problem));
        }
    }
    let operations = all.into_iter().map(Shown::of).collect::<anyhow::Result<Vec<_>>>()?;
    if out.format() == Format::Json {
        return Ok(out.json(&AllShown { operations })?);
    }
    for (number, shown) in operations.iter().enumerate() {
        let gap = if number > 0 { "\n" } else { "" };
        out.text(&format!("{gap}{}: {}\n", shown.name, shown.summary))?;
        let fields = fields(&shown.parameters);
        if !fields.is_empty() {
            let mut table = plain_table(["PARAMETER", "TYPE", "MEANING"]);
            for [place, kind, meaning] in fields {
                table.add_row([place, kind, meaning]);
            }
            out.table(&table)?;
        }
        if !shown.example.is_null() {
            out.text(&format!("example: {}\n", shown.example))?;
        }
    }
    Ok(())
}

/// Each property of a JSON Schema: its place, its type, its description.
fn fields(schema: &Value) -> Vec<[String; 3]> {
    let mut all = Vec::new();
    put_fields(schema, "", &mut all);
    all
}

fn put_fields(schema: &Value, place: &str, into: &mut Vec<[String; 3]>) {
    for (name, it) in schema["properties"].as_object().into_iter().flatten() {
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        let is_required =
            schema["required"].as_array().is_some_and(|all| all.contains(&name.as_str().into()));
        let kind = if is_required { kind(it) } else { format!("{}?", kind(it)) };
        let meaning = it["description"].as_str().unwrap_or_default().to_owned();
        let shown =
            if it["items"]["properties"].is_object() { format!("{place}[]") } else { place };
        into.push([shown.clone(), kind, meaning]);
        put_fields(it, &shown, into);
        put_fields(&it["items"], &shown, into);
    }
}

/// The type that a schema asks for, in a word or two.
fn kind(schema: &Value) -> String {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    match (&schema["type"], schema["enum"].as_array()) {
        (Value::Array(several), _) => several.iter().map(text).collect::<Vec<_>>().join("|"),
        (Value::String(one), _) if schema["items"]["type"].is_string() => {
            format!("{one} of {}", kind(&schema["items"]))
        }
        (Value::String(one), _) => one.clone(),
        (_, Some(values)) => values.iter().map(text).collect::<Vec<_>>().join("|"),
        (_, None) => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_property_of_a_schema_is_shown_with_its_place_type_and_meaning() {
        let schema = json!({"type": "object", "required": ["changes"], "properties": {
            "changes": {"type": "array", "description": "All.", "items": {
                "type": "object", "required": ["class"], "properties": {
                    "class": {"type": "string", "description": "Which."},
                    "life": {"enum": ["keep", "create"]},
                    "most": {"type": ["integer", "null"]}}}},
            "items": {"type": "array", "items": {"type": "string"}},
            "json": {}}});
        let expected = [
            ["changes[]", "array of object", "All."],
            ["changes[].class", "string", "Which."],
            ["changes[].life", "keep|create?", ""],
            ["changes[].most", "integer|null?", ""],
            ["items", "array of string?", ""],
            ["json", "any?", ""],
        ];
        assert_eq!(fields(&schema), expected.map(|row| row.map(str::to_owned)));
        assert_eq!(fields(&Value::Null), Vec::<[String; 3]>::new());
    }
}

//! Parameters of an operation, as a command line gives them: JSON, a file, or standard input.

use super::usage;
use crate::output::{STANDARD, standard};
use anyhow::Context;
use rota_client::docstore::JsonText;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most bytes that are read: more than any operation takes, so that its own limit is told.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the parameters are.
#[derive(Clone, PartialEq, Debug)]
pub enum Parameters {
    Given(String),
    File(PathBuf),
    Stdin,
}

impl FromStr for Parameters {
    /// Text that is no JSON is found by [`Parameters::read`], which does not repeat all of it.
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        if text == STANDARD {
            return Ok(Self::Stdin);
        }
        Ok(match text.strip_prefix('@') {
            Some(file) => Self::File(file.into()),
            None => Self::Given(text.to_owned()),
        })
    }
}

impl Parameters {
    /// The JSON itself.
    pub async fn read(&self) -> anyhow::Result<JsonText> {
        let (text, place) = match self {
            Self::Given(text) => (Ok(text.clone()), "the command line".to_owned()),
            Self::Stdin => {
                let stdin = standard(std::io::stdin().as_fd())?;
                (all_of(stdin).await, "standard input".to_owned())
            }
            Self::File(path) => {
                let place = path.display().to_string();
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|error| usage(format!("parameters: {place}: {error}")))?;
                (all_of(file).await, place)
            }
        };
        let text = text.with_context(|| format!("parameters: {place}"))?;
        let wrong = |problem| usage(format!("parameters: what {place} holds {problem}"));
        JsonText::parse(&text).map_err(|error| wrong(error.problem))
    }
}

async fn all_of(from: impl AsyncRead + Unpin) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(BYTES_MAX + 1).read_to_string(&mut text).await?;
    anyhow::ensure!(text.len() as u64 <= BYTES_MAX, "is longer than {BYTES_MAX} bytes");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::is_usage;

    #[tokio::test]
    async fn parameters_come_from_the_line_or_a_file_and_mistakes_name_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("parameters.json");
        let line = format!("@{}", file.display());
        let read = async |text: &str| text.parse::<Parameters>().unwrap().read().await;
        let missing = read(&line).await.unwrap_err().to_string();
        assert!(missing.starts_with("parameters: ") && missing.contains("parameters.json"));
        std::fs::write(&file, r#" {"a": 18446744073709551616}"#).unwrap();
        let given = read(&line).await.unwrap();
        assert!(given.as_str().contains("18446744073709551616"));
        assert_eq!(read(r#"{"a":1}"#).await.unwrap().as_str(), r#"{"a":1}"#);
        std::fs::write(&file, "{").unwrap();
        let wrong = read(&line).await.unwrap_err().to_string();
        assert!(wrong.contains("parameters.json holds") && wrong.contains("parse"), "{wrong}");
        assert_eq!("-".parse(), Ok(Parameters::Stdin));
        for (text, told) in [("{", "does not parse"), ("null", "is null")] {
            let wrong = read(text).await.unwrap_err();
            assert!(is_usage(&wrong) && wrong.to_string().contains(told), "{wrong}");
        }
        let long = format!("{{{}", "x".repeat(5_000));
        let wrong = read(&long).await.unwrap_err().to_string();
        assert!(wrong.contains("the command line holds") && wrong.len() < 300, "{wrong}");
    }
}

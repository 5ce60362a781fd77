//! A plain HTTP client, written by hand: it must owe nothing to the servers that it tests.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub struct Page {
    /// Status code.
    pub code: u16,
    /// First line and headers.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Page {
    /// A header, by its name in whatever case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1).filter_map(|it| it.split_once(':'));
        let mut named = headers.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }
}

/// Asks for a page at `host:port`. An error says what failed.
pub async fn http_get(address: &str, path: &str) -> Result<Page, String> {
    let asked = timeout(WAIT, ask(address, path)).await;
    let bytes = match asked {
        Err(_) => return Err(format!("no answer within {WAIT:?}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(bytes)) => bytes,
    };
    let text = String::from_utf8_lossy(&bytes);
    let parts = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let code = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(Page { code, head: head.to_owned(), body: body.to_owned() })
    });
    parts.ok_or_else(|| format!("this is no HTTP: {text}"))
}

async fn ask(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: no chunks, and the end of the body is the end of the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

//! A plain HTTP client, written by hand: it must owe nothing to the servers that it tests.

use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, Lines,
};
use tokio::net::{TcpStream, UnixStream};
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

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_str(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// GET, POST, ...
    pub method: &'a str,
    /// With its query.
    pub path: &'a str,
    /// Beside `Host`, and with a body its length. `Host` here takes that one's place.
    pub headers: &'a [(&'a str, &'a str)],
    /// None: none.
    pub body: Option<&'a str>,
}

impl<'a> HttpRequest<'a> {
    /// A GET.
    pub fn get(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Self {
        Self { method: "GET", path, headers, body: None }
    }

    fn text(&self, address: &str) -> String {
        let named = self.headers.iter().any(|it| it.0.eq_ignore_ascii_case("host"));
        // A socket has no name.
        let own = if address.starts_with("unix:") { "localhost" } else { address };
        let host = if named { String::new() } else { format!("Host: {own}\r\n") };
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = self.body.map(|it| format!("Content-Length: {}\r\n", it.len()));
        // HTTP/1.0: no chunks, and the end of the body is the end of the connection.
        format!(
            "{} {} HTTP/1.0\r\n{host}{headers}{}\r\n{}",
            self.method,
            self.path,
            length.unwrap_or_default(),
            self.body.unwrap_or_default()
        )
    }
}

/// A connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to `host:port`, or to the socket `unix:PATH`.
async fn connect(address: &str) -> std::io::Result<Box<dyn Stream>> {
    Ok(match address.strip_prefix("unix:") {
        Some(path) => Box::new(UnixStream::connect(path).await?),
        None => Box::new(TcpStream::connect(address).await?),
    })
}

/// Asks for a page at `host:port`. An error says what failed.
pub async fn http_get(address: &str, path: &str) -> Result<Page, String> {
    http_ask(address, HttpRequest::get(path, &[])).await
}

/// Sends JSON to a page at `host:port`.
pub async fn http_post(address: &str, path: &str, body: &str) -> Result<Page, String> {
    let headers = &[("Content-Type", "application/json")];
    http_ask(address, HttpRequest { method: "POST", path, headers, body: Some(body) }).await
}

/// Sends a request to `host:port`. An error says what failed.
pub async fn http_ask(address: &str, request: HttpRequest<'_>) -> Result<Page, String> {
    let asked = timeout(WAIT, ask(address, &request.text(address))).await;
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

async fn ask(address: &str, request: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Server-sent events, read one by one.
pub struct EventStream {
    lines: Lines<BufReader<Box<dyn Stream>>>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// Its name; empty: a message.
    pub name: String,
    /// Empty: it has none.
    pub id: String,
    /// What it says.
    pub data: String,
}

impl EventStream {
    /// Begins to read what stands there.
    pub async fn open(address: &str, request: HttpRequest<'_>) -> Result<Self, String> {
        let begin = async {
            let mut stream = connect(address).await?;
            stream.write_all(request.text(address).as_bytes()).await?;
            let mut lines = BufReader::new(stream).lines();
            let mut head = Vec::new();
            while let Some(line) = lines.next_line().await?.filter(|it| !it.is_empty()) {
                head.push(line);
            }
            Ok::<_, std::io::Error>((lines, head))
        };
        let begun = timeout(WAIT, begin).await.map_err(|_| "no head in time".to_owned())?;
        let (lines, head) = begun.map_err(|error| error.to_string())?;
        let has = |text: &str| head.iter().any(|it| it.to_lowercase().contains(text));
        if has("text/event-stream") && head[0].contains(" 200 ") {
            return Ok(Self { lines });
        }
        Err(format!("no events: {head:?}"))
    }

    /// The next one; `None` when there are no more.
    pub async fn next(&mut self) -> Result<Option<Event>, String> {
        timeout(WAIT, self.read()).await.map_err(|_| "no event in time".to_owned())?
    }

    async fn read(&mut self) -> Result<Option<Event>, String> {
        let (mut event, mut empty) = (Event::default(), true);
        loop {
            let line = self.lines.next_line().await.map_err(|error| error.to_string())?;
            let Some(line) = line else { return Ok(None) };
            if line.is_empty() && !empty {
                return Ok(Some(event));
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.trim_start().to_owned();
            match field {
                "event" => event.name = value,
                "id" => event.id = value,
                "data" => event.data.push_str(&value),
                _ => continue,
            }
            empty = false;
        }
    }
}

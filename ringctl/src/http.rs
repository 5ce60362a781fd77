//! One page by HTTP, as plainly as it can be: of a manager's metrics, of a Consul agent.

use std::io::{Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Most bytes of a page.
const PAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The body of a page that is there (200). The caller has the deadline.
pub async fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        let text = format!("{address}{path} answers {status:?}");
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Serves one answer; gives where.
    async fn serving(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn the_body_of_a_page_is_what_follows_its_head() {
        let at = serving("HTTP/1.1 200 OK\r\nx: y\r\n\r\nrota_a 1\nrota_b 2\n").await;
        assert_eq!(get(&at, "/metrics").await.unwrap(), "rota_a 1\nrota_b 2\n");
    }

    #[tokio::test]
    async fn a_page_that_is_not_there_is_an_error_with_its_status() {
        let at = serving("HTTP/1.1 404 Not Found\r\n\r\nno").await;
        let error = get(&at, "/metrics").await.unwrap_err().to_string();
        assert!(error.contains("404") && error.contains("/metrics"), "{error}");
    }
}

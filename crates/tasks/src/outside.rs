//! What a task does that works beside the manager: it runs a program, sends a request, or calls a method.

use crate::task::{EXEC, GRPC, HTTP};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use rota_model::FieldError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most bytes of all arguments of a program. More than the kernel takes would fail at each run.
pub const ARGS_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a request. Servers refuse requests with many more.
pub const HEADERS_MAX: usize = 32;
/// Methods of requests.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Headers that the connection sets, or the target's flag.
const OWN_HEADERS: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// How headers begin by which an application knows the task.
const ROTA_HEADERS: &str = "x-rota-";

/// The work of such a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outside {
    /// [`EXEC`].
    Exec(ProgramRun),
    /// [`HTTP`].
    Http(HttpCall),
    /// [`GRPC`].
    Grpc(GrpcCall),
}

/// A program to run.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRun {
    /// Its name in the flags.
    pub program: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// What stands on its standard input; `null`: nothing.
    #[serde(default)]
    pub stdin: Value,
}

/// A request to send.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpCall {
    /// The name of the URL in the flags.
    pub target: String,
    /// What comes behind that URL.
    #[serde(default = "slash")]
    pub path: String,
    /// One of GET, HEAD, POST, PUT, PATCH, DELETE.
    #[serde(default = "post")]
    pub method: String,
    /// The body, as JSON; `null`: none.
    #[serde(default)]
    pub body: Value,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// A method to call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcCall {
    /// The name of the URL in the flags.
    pub target: String,
    /// `package.Service/Method`.
    pub method: String,
    /// The message, encoded.
    pub message: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrpcForm {
    target: String,
    method: String,
    #[serde(default)]
    message: String,
}

fn slash() -> String {
    "/".to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

fn wrong(problem: impl Into<String>) -> FieldError {
    FieldError::new("param", problem)
}

fn form<T: DeserializeOwned>(param: &Value) -> Result<T, FieldError> {
    T::deserialize(param).map_err(|it| wrong(format!("does not read: {it}")))
}

impl Outside {
    /// Reads the parameters of such an operation; `None`: it is another one.
    ///
    /// # Errors
    ///
    /// The first mistake, with the field `param`.
    pub fn parse(op_name: &str, param: &Value) -> Result<Option<Self>, FieldError> {
        match op_name {
            EXEC => Ok(Some(Self::Exec(ProgramRun::parse(param)?))),
            HTTP => Ok(Some(Self::Http(HttpCall::parse(param)?))),
            GRPC => Ok(Some(Self::Grpc(GrpcCall::parse(param)?))),
            _ => Ok(None),
        }
    }
}

impl ProgramRun {
    fn parse(param: &Value) -> Result<Self, FieldError> {
        let run: Self = form(param)?;
        let bytes: usize = run.args.iter().map(|it| it.len() + 1).sum();
        if bytes > ARGS_BYTES_MAX {
            let limit = format!("has {bytes} bytes of \"args\"; the limit is {ARGS_BYTES_MAX}");
            return Err(wrong(limit + "; hand the rest over as \"stdin\""));
        }
        if let Some(arg) = run.args.iter().find(|it| it.contains('\0')) {
            return Err(wrong(format!("has {arg:?} among \"args\": no argument holds a NUL")));
        }
        Ok(run)
    }
}

impl HttpCall {
    fn parse(param: &Value) -> Result<Self, FieldError> {
        let call: Self = form(param)?;
        if !METHODS.contains(&call.method.as_str()) {
            let methods = METHODS.join(", ");
            return Err(wrong(format!("has the method {:?}; it must be {methods}", call.method)));
        }
        check_path(&call.path)?;
        if call.headers.len() > HEADERS_MAX {
            let count = call.headers.len();
            return Err(wrong(format!("has {count} headers; the limit is {HEADERS_MAX}")));
        }
        for (name, value) in &call.headers {
            check_header(name, value)?;
        }
        Ok(call)
    }
}

/// A path never leaves the URL of its target, however a server reads it.
fn check_path(path: &str) -> Result<(), FieldError> {
    let told = |why: &str| Err(wrong(format!("has the path {path:?}, which {why}")));
    if !path.starts_with('/') {
        return told("must begin with a slash");
    }
    if let Some(odd) = path.chars().find(|it| !it.is_ascii_graphic() || "\\#".contains(*it)) {
        let why = format!("has {odd:?}; write it percent-encoded");
        return told(&why);
    }
    let before_query = path.split('?').next().unwrap_or_default();
    let decoded = percent_decode_str(before_query).collect::<Vec<u8>>();
    let mut segments = decoded.split(|it| b"/\\".contains(it));
    if segments.any(|it| matches!(it, b"." | b"..")) {
        return told("leads out of the target: leave out \".\" and \"..\"");
    }
    Ok(())
}

fn check_header(name: &str, value: &str) -> Result<(), FieldError> {
    let is_name = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(wrong(format!("has the header {name:?}, which is no name of a header")));
    }
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&lower.as_str()) || lower.starts_with(ROTA_HEADERS) {
        return Err(wrong(format!(
            "has the header {name:?}, which the manager sets; leave it out"
        )));
    }
    if value.bytes().any(|it| it != b' ' && !it.is_ascii_graphic()) {
        let problem = format!("has {value:?} as header {name}; it must be visible ASCII");
        return Err(wrong(problem));
    }
    Ok(())
}

impl GrpcCall {
    fn parse(param: &Value) -> Result<Self, FieldError> {
        let GrpcForm { target, method, message } = form(param)?;
        let is_word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"._".contains(&it))
        };
        let is_method = method.split_once('/').is_some_and(|it| is_word(it.0) && is_word(it.1));
        if !is_method {
            let problem = format!("has the method {method:?}; it must be package.Service/Method");
            return Err(wrong(problem));
        }
        let message = STANDARD
            .decode(&message)
            .map_err(|it| wrong(format!("has a \"message\" that is no base64: {it}")))?;
        Ok(Self { target, method, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(op_name: &str, param: &Value) -> String {
        Outside::parse(op_name, param).unwrap_err().to_string()
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let exec = Outside::parse(EXEC, &json!({"program": "mail"})).unwrap();
        let run = ProgramRun { program: "mail".into(), args: Vec::new(), stdin: Value::Null };
        assert_eq!(exec, Some(Outside::Exec(run)));
        let Some(Outside::Http(call)) = Outside::parse(HTTP, &json!({"target": "shop"})).unwrap()
        else {
            panic!("it is a request")
        };
        assert_eq!((call.path.as_str(), call.method.as_str()), ("/", "POST"));
        let call = json!({"target": "shop", "method": "a.B/C", "message": "AQI="});
        let call = Outside::parse(GRPC, &call).unwrap();
        let (target, method) = ("shop".into(), "a.B/C".into());
        assert_eq!(call, Some(Outside::Grpc(GrpcCall { target, method, message: vec![1, 2] })));
        assert_eq!(Outside::parse("bill", &json!(7)), Ok(None));
    }

    #[test]
    fn each_mistake_is_told() {
        let of_exec = [
            (json!({"program": "p", "argv": []}), "unknown field `argv`"),
            (json!({"program": "p", "args": "x"}), "expected a sequence"),
            (json!({"program": "p", "args": ["a\0b"]}), "NUL"),
            (json!({"program": "p", "args": ["x".repeat(ARGS_BYTES_MAX)]}), "the limit is 65536"),
        ];
        for (param, part) in of_exec {
            assert!(told(EXEC, &param).contains(part), "{param}");
        }
        let of_grpc = [
            (json!({"target": "t"}), "missing field `method`"),
            (json!({"target": "t", "method": "Method"}), "package.Service/Method"),
            (json!({"target": "t", "method": "a.B/C/D"}), "package.Service/Method"),
            (json!({"target": "t", "method": "a.B/C", "message": "*"}), "no base64"),
        ];
        for (param, part) in of_grpc {
            assert!(told(GRPC, &param).contains(part), "{param}");
        }
    }

    #[test]
    fn a_path_stays_below_its_target() {
        let path = |path: &str| json!({"target": "t", "path": path});
        for good in ["/", "/a/b", "/a..b/...", "/a?next=../b", "/a%20b", "//a"] {
            assert!(Outside::parse(HTTP, &path(good)).is_ok(), "{good}");
        }
        let out = "leads out of the target";
        for (bad, part) in [
            ("", "must begin with a slash"),
            ("a", "must begin with a slash"),
            ("@evil/", "must begin with a slash"),
            ("/../a", out),
            ("/a/%2e%2E/b", out),
            ("/a/..%2fb", out),
            ("/a%5c..%5Cb", out),
            ("/./a", out),
            ("/a\\..\\b", "write it percent-encoded"),
            ("/a#b", "write it percent-encoded"),
            ("/a b", "write it percent-encoded"),
            ("/ä", "write it percent-encoded"),
        ] {
            assert!(told(HTTP, &path(bad)).contains(part), "{bad}: {}", told(HTTP, &path(bad)));
        }
    }

    #[test]
    fn a_request_sets_no_header_of_the_manager() {
        let header = |name: &str, value: &str| json!({"target": "t", "headers": {name: value}});
        assert!(Outside::parse(HTTP, &header("X-Shop", "a b")).is_ok());
        for (name, value, part) in [
            ("Authorization", "Bearer x", "which the manager sets"),
            ("X-Rota-Task", "x", "which the manager sets"),
            ("Host", "x", "which the manager sets"),
            ("a b", "x", "no name of a header"),
            ("", "x", "no name of a header"),
            ("X-Shop", "a\r\nb: c", "visible ASCII"),
        ] {
            assert!(told(HTTP, &header(name, value)).contains(part), "{name}");
        }
        let many: BTreeMap<String, String> =
            (0..33).map(|it| (format!("x-{it}"), String::new())).collect();
        assert!(told(HTTP, &json!({"target": "t", "headers": many})).contains("limit is 32"));
        let method = json!({"target": "t", "method": "CONNECT"});
        assert!(told(HTTP, &method).contains("GET, HEAD, POST"));
    }
}

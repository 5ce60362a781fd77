//! From a class's templates and a session's values to an argument list. Never a shell string.

use super::{Class, Health, HealthCheck, ProgramClass};
use core::net::IpAddr;
use rota_model::{Attributes, SessionKey};
use std::collections::BTreeMap;

/// One argument or variable, with placeholders.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
}

/// A part of a [`Template`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// `{session}`: the session's id.
    Session,
    /// `{namespace}`: the session's namespace.
    Namespace,
    /// `{port}`: the free port that the node gives out.
    Port,
    /// `{port.NAME}`: a further free port.
    NamedPort(String),
    /// `{ip}`: the IP address that the node listens on.
    Ip,
    /// `{folder}`: the session's working folder.
    Folder,
    /// `{class}`: the folder of the class.
    ClassFolder,
    /// `{attr.NAME}`: an attribute.
    Attribute(String),
}

/// What the placeholders stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values<'a> {
    /// Which session.
    pub key: &'a SessionKey,
    /// The port given out (any, when the class wants none).
    pub port: u16,
    /// The further ports given out, by the names that the class lists.
    pub ports: &'a BTreeMap<String, u16>,
    /// The IP address that the node listens on: what listens there is reached where the node is.
    pub ip: IpAddr,
    /// The session's working folder, absolute.
    pub folder: &'a str,
    /// The folder of the class, absolute.
    pub class_folder: &'a str,
    /// The attributes that the open gave.
    pub attributes: &'a Attributes,
}

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CommandLine {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// Variables to set.
    pub env: BTreeMap<String, String>,
}

/// Why a session cannot be started with these attributes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum StartError {
    /// Neither the open nor the class gives it.
    #[error("attribute {name:?} is missing: class {class:?} uses it in {place} and has no default")]
    MissingAttribute {
        /// The attribute.
        name: String,
        /// The class.
        class: String,
        /// Where it is used: `argv[2]`, `env.HOME`.
        place: String,
    },
    /// A client's value would be taken for an option.
    #[error(
        "{place} of class {class:?} would begin with -, as an option does, and a client chose it: class \
         field options = true allows that"
    )]
    Option {
        /// The class.
        class: String,
        /// Where.
        place: String,
    },
    /// No argument or variable can hold a NUL byte.
    #[error("{place} of class {class:?} would hold a NUL byte, which no program can be given")]
    NulByte {
        /// The class.
        class: String,
        /// Where.
        place: String,
    },
}

impl Template {
    /// Reads `text`; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("has a } without a { before it; write }} for a brace".into());
            }
            let Some(end) = rest.find('}') else {
                return Err("has a { without a } after it; write {{ for a brace".into());
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::parse(&rest[..end])?);
            rest = &rest[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// Whether it holds that piece.
    pub fn mentions(&self, piece: &Piece) -> bool {
        self.pieces.contains(piece)
    }

    /// Whether it holds anything that a client chooses.
    pub fn is_given(&self) -> bool {
        self.pieces.iter().any(Piece::is_given)
    }

    /// Whether it begins with something that a client chooses.
    fn begins_given(&self) -> bool {
        self.pieces.first().is_some_and(Piece::is_given)
    }

    /// Whether it holds the attribute of that name.
    fn uses(&self, attribute: &str) -> bool {
        self.pieces.iter().any(|it| matches!(it, Piece::Attribute(name) if name == attribute))
    }

    /// The names of the further ports that it holds.
    pub fn named_ports(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::NamedPort(name) => Some(name.as_str()),
            Piece::Text(_)
            | Piece::Session
            | Piece::Namespace
            | Piece::Port
            | Piece::Ip
            | Piece::Folder
            | Piece::ClassFolder
            | Piece::Attribute(_) => None,
        })
    }

    /// The text, where no session's values are part of it.
    pub fn as_text(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text, where it names something in the folder of its class, and no session's values are part of it.
    pub fn in_class_folder(&self, folder: &str) -> Option<String> {
        match self.pieces.as_slice() {
            [Piece::ClassFolder, Piece::Text(rest)] => Some(format!("{folder}{rest}")),
            _ => None,
        }
    }

    /// Whether it is an empty text.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn fill(&self, class: &Class, values: &Values<'_>, place: &str) -> Result<String, StartError> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Session => text.push_str(values.key.id.as_str()),
                Piece::Namespace => text.push_str(values.key.namespace.as_str()),
                Piece::Port => text.push_str(&values.port.to_string()),
                // The class file lists every name that it uses, and the caller gives a port for each.
                Piece::NamedPort(name) => {
                    let port = values.ports.get(name).copied().unwrap_or_default();
                    text.push_str(&port.to_string());
                }
                Piece::Ip => text.push_str(&values.ip.to_string()),
                Piece::Folder => text.push_str(values.folder),
                Piece::ClassFolder => text.push_str(values.class_folder),
                Piece::Attribute(name) => {
                    let given = values.attributes.get(name).or_else(|| class.attributes.get(name));
                    text.push_str(given.ok_or_else(|| StartError::MissingAttribute {
                        name: name.clone(),
                        class: class.name.to_string(),
                        place: place.to_owned(),
                    })?);
                }
            }
        }
        if text.contains('\0') {
            let class = class.name.to_string();
            return Err(StartError::NulByte { class, place: place.to_owned() });
        }
        Ok(text)
    }
}

impl Piece {
    /// Whether a client chooses what stands there: whoever opens a session names it and gives its attributes.
    fn is_given(&self) -> bool {
        match self {
            Piece::Session | Piece::Namespace | Piece::Attribute(_) => true,
            Piece::Text(_)
            | Piece::Port
            | Piece::NamedPort(_)
            | Piece::Ip
            | Piece::Folder
            | Piece::ClassFolder => false,
        }
    }

    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "session" => Ok(Piece::Session),
            "namespace" => Ok(Piece::Namespace),
            "port" => Ok(Piece::Port),
            "ip" => Ok(Piece::Ip),
            "folder" => Ok(Piece::Folder),
            "class" => Ok(Piece::ClassFolder),
            other => Self::parse_dotted(other).ok_or_else(|| {
                format!(
                    "has an unknown placeholder {{{other}}}; known are {{session}}, {{namespace}}, {{ip}}, \
                     {{port}}, {{port.NAME}}, {{folder}}, {{class}} and {{attr.NAME}}; write {{{{ for a brace"
                )
            }),
        }
    }
}

impl Piece {
    fn parse_dotted(text: &str) -> Option<Self> {
        match text.split_once('.')? {
            (_, "") => None,
            ("attr", name) => Some(Piece::Attribute(name.to_owned())),
            ("port", name) => Some(Piece::NamedPort(name.to_owned())),
            (_, _) => None,
        }
    }
}

impl ProgramClass {
    /// Whether an argument or a variable holds the attribute of that name.
    pub(super) fn uses(&self, attribute: &str) -> bool {
        self.argv.iter().chain(self.env.values()).any(|template| template.uses(attribute))
    }

    /// What to run for a session. `class` is the class that this program stands in.
    pub fn command(&self, class: &Class, values: &Values<'_>) -> Result<CommandLine, StartError> {
        let argv = fill_argv(&self.argv, self.options, ("argv", class), values)?;
        let mut env = BTreeMap::new();
        for (name, template) in &self.env {
            env.insert(name.clone(), template.fill(class, values, &format!("env.{name}"))?);
        }
        Ok(CommandLine { argv, env })
    }
}

/// Program and arguments that stand in that field of a class.
fn fill_argv(
    argv: &[Template],
    options: bool,
    (field, class): (&str, &Class),
    values: &Values<'_>,
) -> Result<Vec<String>, StartError> {
    let mut filled = Vec::with_capacity(argv.len());
    for (index, template) in argv.iter().enumerate() {
        let place = format!("{field}[{index}]");
        let text = template.fill(class, values, &place)?;
        if text.starts_with('-') && template.begins_given() && !options {
            return Err(StartError::Option { class: class.name.to_string(), place });
        }
        filled.push(text);
    }
    Ok(filled)
}

impl Health {
    /// What is run to look after a session, if a program is. `class` is the class that this stands in.
    ///
    /// # Errors
    /// As for the session's program.
    pub fn command(
        &self,
        class: &Class,
        values: &Values<'_>,
    ) -> Result<Option<Vec<String>>, StartError> {
        match &self.check {
            HealthCheck::Program(argv) => {
                fill_argv(argv, false, ("life.health.argv", class), values).map(Some)
            }
            HealthCheck::Port | HealthCheck::Http(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId};

    #[test]
    fn attributes_that_a_class_does_not_use_are_remarked_on_and_others_are_not() {
        let class = class(&["p", "{attr.size}"]);
        let remark = |names: &[&str]| {
            class.remark_on(&names.iter().map(|it| ((*it).to_owned(), String::new())).collect())
        };
        assert_eq!(remark(&["colour", "size"]), "");
        assert_eq!(remark(&["colour", "sise"]), "class c does not use attribute \"sise\"");
        let many = remark(&["a", "b", "c\n", "d", "e", "size"]);
        assert_eq!(many, "class c does not use attribute \"a\", \"b\", \"c\\n\" and 2 more");
    }

    fn class(argv: &[&str]) -> Class {
        let list: Vec<String> = argv.iter().map(|it| format!("{it:?}")).collect();
        let text = format!(
            "name = \"c\"\nkind = \"program\"\nargv = [{}]\nready = {{ line = \"up\" }}\n\
             attributes = {{ colour = \"red\" }}\nenv = {{ WHERE = \"{{folder}}/x\" }}",
            list.join(",")
        );
        Class::parse("c.toml", &text).unwrap()
    }

    fn run(argv: &[&str], attributes: &[(&str, &str)]) -> Result<CommandLine, StartError> {
        let class = class(argv);
        let super::super::ClassKind::Program(program) = &class.kind else { panic!("a program") };
        let key = SessionKey::new(
            Namespace::default_space(),
            SessionId::parse("a b\"; rm -rf $HOME '").unwrap(),
        );
        let attributes =
            attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let ip = IpAddr::from([10, 0, 0, 5]);
        let (key, attributes) = (&key, &attributes);
        let ports = BTreeMap::new();
        let values = Values {
            key,
            ip,
            port: 4711,
            ports: &ports,
            folder: "/tmp/s 1",
            class_folder: "/classes/c",
            attributes,
        };
        program.command(&class, &values)
    }

    #[test]
    fn a_value_with_spaces_and_quotes_stays_one_argument() {
        let line = run(&["echo", "{session}", "-p{port}", "{ip}"], &[]).unwrap();
        assert_eq!(line.argv, ["echo", "a b\"; rm -rf $HOME '", "-p4711", "10.0.0.5"]);
        assert_eq!(line.env["WHERE"], "/tmp/s 1/x");
    }

    #[test]
    fn an_attribute_of_the_open_wins_over_the_default_of_the_class() {
        let argv = ["p", "{attr.colour}", "{namespace}"];
        assert_eq!(run(&argv, &[]).unwrap().argv, ["p", "red", "default"]);
        assert_eq!(run(&argv, &[("colour", "sea green")]).unwrap().argv[1], "sea green");
    }

    #[test]
    fn a_missing_attribute_is_named_with_its_place() {
        let error = run(&["p", "--size={attr.size}"], &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("\"size\"") && text.contains("argv[1]"), "{text}");
    }

    #[test]
    fn a_value_that_looks_like_a_placeholder_is_not_filled_again() {
        let line = run(&["p", "{attr.colour}"], &[("colour", "{port} {{")]).unwrap();
        assert_eq!(line.argv[1], "{port} {{");
    }

    #[test]
    fn a_clients_value_is_no_option_unless_the_class_says_so() {
        let given = [("colour", "--help")];
        let error = run(&["p", "{attr.colour}"], &given).unwrap_err().to_string();
        assert!(error.contains("argv[1]") && error.contains("options = true"), "{error}");
        assert_eq!(run(&["p", "--x={attr.colour}"], &given).unwrap().argv[1], "--x=--help");
        assert_eq!(run(&["p", "-{attr.colour}"], &given).unwrap().argv[1], "---help");
        let Class { kind, .. } = class(&["p"]);
        let super::super::ClassKind::Program(program) = kind else { panic!("a program") };
        assert!(!program.options);
    }

    #[test]
    fn a_nul_byte_in_a_value_is_refused() {
        let error = run(&["p", "{attr.colour}"], &[("colour", "a\0b")]).unwrap_err();
        assert!(matches!(error, StartError::NulByte { .. }));
    }

    #[test]
    fn doubled_braces_are_braces() {
        let line = run(&["p", "{{}}{{{port}}}"], &[]).unwrap();
        assert_eq!(line.argv[1], "{}{4711}");
    }

    #[test]
    fn broken_templates_are_refused() {
        for wrong in
            ["{", "}", "{}", "{attr.}", "{attr}", "{port.}", "{x.y}", "{Port}", "a{port", "port}"]
        {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}

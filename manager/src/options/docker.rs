//! Containers as nodes: their images, networks and mounts, which only the managers' own flags name.

use rota_model::{FieldError, ProvisionerName};
use rota_provision::docker::{DockerOptions, HOST_NETWORK, Mount};
use rota_provision::process::PROCESS;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// Options of provisioners that start containers.
#[derive(clap::Args, Debug, Default)]
pub struct DockerArguments {
    /// A provisioner that starts each node as a container of this image, for pools that name it; may be given several
    /// times. The image must be on the engine: nothing is pulled.
    #[arg(long = "provision-docker", value_name = "NAME=IMAGE")]
    pub images: Vec<String>,
    /// The UNIX socket of the engine [default: /var/run/docker.sock].
    #[arg(long = "provision-docker-socket", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The network of that provisioner's containers; `host`: that of this machine, on loopback [default: bridge].
    #[arg(long = "provision-docker-network", value_name = "NAME=NETWORK")]
    pub networks: Vec<String>,
    /// A folder or file of this machine in that provisioner's containers; may be given several times. The node-agent
    /// takes its class files from /classes.
    #[arg(long = "provision-docker-mount", value_name = "NAME=SOURCE:TARGET[:ro]")]
    pub mounts: Vec<String>,
}

const IMAGE: &str = "--provision-docker";
const SOCKET: &str = "--provision-docker-socket";
const NETWORK: &str = "--provision-docker-network";
const MOUNT: &str = "--provision-docker-mount";

impl DockerArguments {
    /// The provisioners, by name. Those in `taken` are something else already.
    pub(super) fn check(
        &self,
        taken: &dyn Fn(&ProvisionerName) -> bool,
        wrong: &mut Vec<FieldError>,
    ) -> BTreeMap<ProvisionerName, DockerOptions> {
        let mut note = |flag: &str, result: Result<(), String>| {
            wrong.extend(result.err().map(|problem| FieldError::new(flag, problem)));
        };
        let socket = self.socket.clone().unwrap_or_else(|| PathBuf::from("/var/run/docker.sock"));
        match (&self.socket, self.images.is_empty()) {
            (Some(_), true) => note(SOCKET, Err(format!("is given, and no {IMAGE}"))),
            (None, true) => {}
            (_, false) => note(SOCKET, may_be_engine(&socket)),
        }
        let mut all = BTreeMap::new();
        for text in &self.images {
            note(IMAGE, add_image(&mut all, text, &socket, taken));
        }
        let mut named = Vec::new();
        for text in &self.networks {
            note(NETWORK, set_network(&mut all, text, &mut named));
        }
        for text in &self.mounts {
            note(MOUNT, add_mount(&mut all, text));
        }
        all
    }
}

type All = BTreeMap<ProvisionerName, DockerOptions>;

/// A socket that is not there yet may come: the engine may start after the manager.
fn may_be_engine(socket: &Path) -> Result<(), String> {
    let shown = socket.display();
    if !socket.is_absolute() || socket.to_str().is_none() {
        return Err(format!("is {shown:?}; it must be an absolute path"));
    }
    match socket.metadata() {
        Ok(it) if !it.file_type().is_socket() => Err(format!("is {shown}, which is no socket")),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn add_image(
    all: &mut All,
    text: &str,
    socket: &Path,
    taken: &dyn Fn(&ProvisionerName) -> bool,
) -> Result<(), String> {
    let form = || format!("is {text:?}; it must be NAME=IMAGE");
    let (name, image) = text.split_once('=').ok_or_else(form)?;
    let name = ProvisionerName::parse_new(name).map_err(|it| format!("{}: {it}", form()))?;
    if name.as_str() == PROCESS {
        return Err(format!("names {PROCESS:?}, which is built in (--process-agent)"));
    }
    if all.contains_key(&name) {
        return Err(format!("names {name} twice"));
    }
    if taken(&name) {
        return Err(format!("names {name}, as --provision-command does"));
    }
    let fits = |it: char| it.is_ascii_alphanumeric() || "._-/:@".contains(it);
    if !image.starts_with(|it: char| it.is_ascii_alphanumeric()) || !image.chars().all(fits) {
        return Err(format!("names {image:?}, which is no name of an image"));
    }
    let options = DockerOptions {
        socket: socket.to_owned(),
        image: image.to_owned(),
        network: "bridge".to_owned(),
        mounts: Vec::new(),
    };
    all.insert(name, options);
    Ok(())
}

/// The provisioner that the text begins with, and the rest of it.
fn of_image<'a, 'b>(
    all: &'a mut All,
    text: &'b str,
    form: &str,
) -> Result<(ProvisionerName, &'a mut DockerOptions, &'b str), String> {
    let form = || format!("is {text:?}; it must be {form}");
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let name = ProvisionerName::parse_new(name).map_err(|it| format!("{}: {it}", form()))?;
    match all.get_mut(&name) {
        Some(options) => Ok((name, options, rest)),
        None => Err(format!("names {name}, which no {IMAGE} names")),
    }
}

fn set_network(all: &mut All, text: &str, named: &mut Vec<ProvisionerName>) -> Result<(), String> {
    let (name, options, network) = of_image(all, text, "NAME=NETWORK")?;
    if named.contains(&name) {
        return Err(format!("names {name} twice"));
    }
    let fits = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    if !network.starts_with(|it: char| it.is_ascii_alphanumeric()) || !network.chars().all(fits) {
        return Err(format!("names {network:?}, which is no name of a network"));
    }
    if network == "none" {
        return Err(format!(
            "names none, in which nobody reaches a node; use bridge, {HOST_NETWORK} or a network of your own"
        ));
    }
    network.clone_into(&mut options.network);
    named.push(name);
    Ok(())
}

fn add_mount(all: &mut All, text: &str) -> Result<(), String> {
    let (_, options, rest) = of_image(all, text, "NAME=SOURCE:TARGET[:ro]")?;
    let mut parts = rest.split(':');
    let (Some(source), Some(target), mode, None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("is {text:?}; it must be NAME=SOURCE:TARGET[:ro]"));
    };
    let read_only = match mode {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(other) => return Err(format!("ends with {other:?} in {text:?}; it may be ro or rw")),
    };
    for path in [source, target] {
        let path = Path::new(path);
        if !path.is_absolute() || path.components().any(|it| it == Component::ParentDir) {
            return Err(format!("names {path:?}, which is no absolute path without \"..\""));
        }
    }
    if target == "/" {
        return Err("puts something over / of the container".to_owned());
    }
    if options.mounts.iter().any(|it| it.target == target) {
        return Err(format!("puts two things at {target}"));
    }
    // What this user may not see, the engine may.
    if matches!(Path::new(source).try_exists(), Ok(false)) {
        return Err(format!("names {source}, which is not there"));
    }
    options.mounts.push(Mount { source: source.to_owned(), target: target.to_owned(), read_only });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &DockerArguments) -> (All, Vec<String>) {
        let mut wrong = Vec::new();
        let all = given.check(&|it| it.as_str() == "kube", &mut wrong);
        (all, wrong.iter().map(ToString::to_string).collect())
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|it| (*it).to_owned()).collect()
    }

    fn told(given: &DockerArguments, parts: &[&str]) {
        let (_, wrong) = check(given);
        assert_eq!(wrong.len(), parts.len(), "{wrong:?}");
        for (told, part) in wrong.iter().zip(parts) {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
    }

    #[test]
    fn images_have_networks_and_mounts_of_their_own() {
        let (all, wrong) = check(&DockerArguments {
            images: texts(&["box=agent:1", "big=example.org:5000/a/b@sha256:00"]),
            socket: Some(PathBuf::from("/no/such/engine.sock")),
            networks: texts(&["box=host"]),
            mounts: texts(&["box=/etc:/classes:ro", "box=/tmp:/scratch"]),
        });
        assert_eq!(wrong, Vec::<String>::new());
        let it = |name| &all[&ProvisionerName::parse(name).unwrap()];
        assert_eq!((it("box").network.as_str(), it("big").network.as_str()), ("host", "bridge"));
        let mounts: Vec<_> =
            it("box").mounts.iter().map(|it| (&*it.target, it.read_only)).collect();
        assert_eq!(mounts, [("/classes", true), ("/scratch", false)]);
        assert_eq!(it("big").mounts, []);
        assert_eq!(it("big").image, "example.org:5000/a/b@sha256:00");
    }

    #[test]
    fn every_mistake_about_images_and_their_engine_is_told() {
        let images = texts(&["box", "=agent", "process=a", "kube=a", "a=b", "a=c", "d=-x", "e="]);
        told(
            &DockerArguments { images, socket: Some(PathBuf::from("/etc")), ..Default::default() },
            &[
                "/etc, which is no socket",
                "must be NAME=IMAGE",
                "must be NAME=IMAGE",
                "built in",
                "as --provision-command does",
                "names a twice",
                "\"-x\", which is no name of an image",
                "\"\", which is no name of an image",
            ],
        );
        let socket = Some(PathBuf::from("engine.sock"));
        told(
            &DockerArguments { socket, ..Default::default() },
            &["is given, and no --provision-docker"],
        );
        let socket = Some(PathBuf::from("engine.sock"));
        let images = texts(&["box=agent"]);
        told(
            &DockerArguments { socket, images, ..Default::default() },
            &["must be an absolute path"],
        );
    }

    #[test]
    fn every_mistake_about_networks_and_mounts_is_told() {
        told(
            &DockerArguments {
                images: texts(&["box=agent"]),
                networks: texts(&["host", "ship=host", "box=a b", "box=none", "box=a", "box=b"]),
                mounts: texts(&[
                    "box",
                    "box=/etc",
                    "box=/etc:/a:ro:x",
                    "box=/etc:/a:wo",
                    "box=etc:/a",
                    "box=/etc:/a/../b",
                    "box=/etc:/",
                    "box=/no/such:/a",
                    "box=/etc:/a",
                    "box=/tmp:/a",
                ]),
                ..Default::default()
            },
            &[
                "must be NAME=NETWORK",
                "ship, which no --provision-docker names",
                "\"a b\", which is no name of a network",
                "names none",
                "names box twice",
                "must be NAME=SOURCE:TARGET",
                "must be NAME=SOURCE:TARGET",
                "must be NAME=SOURCE:TARGET",
                "\"wo\"",
                "no absolute path",
                "no absolute path",
                "over / of the container",
                "/no/such, which is not there",
                "two things at /a",
            ],
        );
    }
}

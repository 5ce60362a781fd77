//! Who starts nodes for this manager.

use super::number;
use rota_daemon::may_hold_data;
use rota_model::{FieldError, ProvisionerName};
use rota_provision::process::{PROCESS, ProcessOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Options for provisioners.
#[derive(clap::Args, Debug, Default)]
pub struct ProvisionerArguments {
    /// Provisioner `process`, which starts nodes as processes of this machine for pools that name it: the
    /// node-agent program. Needs the next two.
    #[arg(long, value_name = "PATH")]
    pub process_agent: Option<PathBuf>,
    /// Folder under which each of these nodes gets its own.
    #[arg(long, value_name = "DIR")]
    pub process_data: Option<PathBuf>,
    /// Folder of the class files that these nodes offer.
    #[arg(long, value_name = "DIR")]
    pub process_classes: Option<PathBuf>,
    /// A provisioner that is a program, for pools that name it; may be given several times. It is run for each
    /// node, with a request as JSON on its standard input, and answers as JSON on its standard output.
    #[arg(long = "provision-command", value_name = "NAME=PROGRAM")]
    pub provision_commands: Vec<String>,
    /// How long such a program may run, in ms, 100 to 600000; then it is killed [default: 60000].
    #[arg(long, value_name = "MS")]
    pub provision_command_ms: Option<String>,
    /// Containers.
    #[cfg(feature = "docker")]
    #[command(flatten)]
    pub docker: super::DockerArguments,
}

/// Who starts nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProvisionerOptions {
    /// The provisioner `process`.
    pub process: Option<ProcessOptions>,
    /// Programs, by name.
    pub commands: BTreeMap<ProvisionerName, PathBuf>,
    /// How long each run of one may take.
    pub command_timeout: Duration,
    /// Images, by name.
    #[cfg(feature = "docker")]
    pub docker: BTreeMap<ProvisionerName, rota_provision::docker::DockerOptions>,
}

impl ProvisionerArguments {
    pub(super) fn check(&self, wrong: &mut Vec<FieldError>) -> ProvisionerOptions {
        let process = self.check_process(wrong);
        let mut commands = BTreeMap::new();
        for text in &self.provision_commands {
            let problem = match command(text) {
                Ok((name, _)) if commands.contains_key(&name) => format!("names {name} twice"),
                Ok((name, program)) => {
                    commands.insert(name, program);
                    continue;
                }
                Err(problem) => problem,
            };
            wrong.push(FieldError::new("--provision-command", problem));
        }
        let ms = self.provision_command_ms.as_deref().unwrap_or("60000");
        let ms = number("--provision-command-ms", ms, 100, 600_000, wrong);
        let command_timeout = Duration::from_millis(ms);
        #[cfg(feature = "docker")]
        let docker = self.docker.check(&|name| commands.contains_key(name), wrong);
        ProvisionerOptions {
            process,
            commands,
            command_timeout,
            #[cfg(feature = "docker")]
            docker,
        }
    }

    fn check_process(&self, wrong: &mut Vec<FieldError>) -> Option<ProcessOptions> {
        let all = [
            ("--process-agent", &self.process_agent),
            ("--process-data", &self.process_data),
            ("--process-classes", &self.process_classes),
        ];
        if all.iter().all(|(_, path)| path.is_none()) {
            return None;
        }
        for (flag, _) in all.iter().filter(|(_, path)| path.is_none()) {
            let given = all.iter().find(|(_, path)| path.is_some()).map_or("", |(flag, _)| flag);
            wrong.push(FieldError::new(*flag, format!("is needed with {given}")));
        }
        if let Some(agent) = self.process_agent.as_ref().filter(|it| !it.is_file()) {
            let problem = format!("is {}, which is no file", agent.display());
            wrong.push(FieldError::new("--process-agent", problem));
        }
        if let Some(data) = &self.process_data {
            wrong.extend(may_hold_data("--process-data", data).err());
        }
        Some(ProcessOptions {
            agent: self.process_agent.clone()?,
            data: self.process_data.clone()?,
            classes: self.process_classes.clone()?,
        })
    }
}

/// A provisioner and its program.
fn command(text: &str) -> Result<(ProvisionerName, PathBuf), String> {
    let form = || format!("is {text:?}; it must be NAME=PROGRAM");
    let (name, program) = text.split_once('=').ok_or_else(form)?;
    let name = ProvisionerName::parse_new(name).map_err(|it| format!("{}: {it}", form()))?;
    if name.as_str() == PROCESS {
        return Err(format!("names {PROCESS:?}, which is built in (--process-agent)"));
    }
    let program = PathBuf::from(program);
    if !program.is_file() {
        return Err(format!("names {}, which is no file", program.display()));
    }
    // A bare name would be looked for on the PATH.
    let program = program.canonicalize().map_err(|it| format!("{}: {it}", program.display()))?;
    Ok((name, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_start_nodes_are_named_and_every_mistake_is_told() {
        let check = |commands: &[&str]| {
            let provision_commands = commands.iter().map(|it| (*it).to_owned()).collect();
            let given = ProvisionerArguments { provision_commands, ..Default::default() };
            let mut wrong = Vec::new();
            let options = given.check(&mut wrong);
            (options, wrong.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (options, wrong) = check(&["kube=/bin/sh", "nomad=/bin/cat"]);
        assert_eq!((options.commands.len(), wrong.len()), (2, 0), "{wrong:?}");
        assert_eq!(options.command_timeout, Duration::from_secs(60));
        let (_, wrong) = check(&[
            "kube",
            "=/bin/sh",
            "process=/bin/sh",
            "a=/no/such",
            "b=/bin/sh",
            "b=/bin/cat",
        ]);
        let parts =
            ["must be NAME=PROGRAM", "must be NAME=PROGRAM", "built in", "is no file", "b twice"];
        assert_eq!(wrong.len(), parts.len(), "{wrong:?}");
        for (told, part) in wrong.iter().zip(parts) {
            assert!(told.contains(part), "{told}");
        }
    }
}

//! Makes a broken copy of a protocol for each patch in `patches`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};

/// Where the protocols are, and what paths in patches are relative to.
const PROTOCOLS: &str = "../src";
/// Where the patches are.
const PATCHES: &str = "patches";
/// What the protocols share; every copy gets its own.
const SHARED: &str = "causal";

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed={PROTOCOLS}");
    println!("cargo:rerun-if-changed={PATCHES}");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    let mut bugs = Vec::new();
    for patch in files(Path::new(PATCHES))? {
        if patch.extension().is_some_and(|extension| extension == "patch") {
            let bug = Bug::read(&patch).with_context(|| format!("{}", patch.display()))?;
            bug.make(&out).with_context(|| format!("{}", patch.display()))?;
            bugs.push(bug);
        }
    }
    fs::write(out.join("bugs.rs"), registry(&bugs, &out)?)?;
    Ok(())
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

struct Bug {
    name: String,
    /// Above the first file of the patch.
    header: String,
    /// A path in [`PROTOCOLS`], and what is changed there.
    changes: Vec<(String, String)>,
}

impl Bug {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)?;
        let start = text.find("--- a/").context("no line starts with `--- a/`")?;
        let (header, patch) = text.split_at(start);
        let mut changes: Vec<(String, String)> = Vec::new();
        for line in patch.split_inclusive('\n').filter(|line| !is_noise(line)) {
            if let Some(path) = line.strip_prefix("--- a/") {
                changes.push((path.trim().to_owned(), String::new()));
            }
            if let Some((_, change)) = changes.last_mut() {
                change.push_str(line);
            }
        }
        let name = file.file_stem().context("no name")?.to_string_lossy().into_owned();
        Ok(Bug { name, header: header.to_owned(), changes })
    }

    /// The module of the copy.
    fn module(&self) -> String {
        self.name.replace('-', "_")
    }

    /// The protocol that is changed: the first part of the name.
    fn protocol(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    fn field(&self, name: &str) -> Result<&str> {
        let value = self.header.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.with_context(|| format!("no line `{name}: …` above the patch"))
    }

    /// What is above the fields, in one line.
    fn story(&self) -> Result<String> {
        let (story, _) = self.header.split_once("\n\n").context("no empty line between story and fields")?;
        Ok(story.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Copies the protocol and what it shares, changed.
    fn make(&self, out: &Path) -> Result<()> {
        let mut unused: Vec<&str> = self.changes.iter().map(|(path, _)| path.as_str()).collect();
        for folder in [self.protocol(), SHARED] {
            let target = out.join(self.module()).join(folder);
            fs::create_dir_all(&target)?;
            for source in files(&Path::new(PROTOCOLS).join(folder))? {
                let path = source.strip_prefix(PROTOCOLS)?.to_string_lossy().into_owned();
                unused.retain(|changed| *changed != path);
                let text = self.changed(&path, fs::read_to_string(&source)?)?;
                let copy = out.join(self.module()).join(&path);
                write_if_changed(&copy, &self.relocated(&text))?;
                if copy.extension().is_some_and(|extension| extension == "proto") {
                    dkvf_build::Config::new().out_dir(out.join(self.module())).compile(&[copy])?;
                }
            }
        }
        ensure!(unused.is_empty(), "there is no {} in {PROTOCOLS}", unused.join(", "));
        Ok(())
    }

    fn changed(&self, path: &str, text: String) -> Result<String> {
        let Some((_, change)) = self.changes.iter().find(|(changed, _)| changed == path) else {
            return Ok(text);
        };
        let patch = diffy::Patch::from_str(change)?;
        diffy::apply(&text, &patch).with_context(|| format!("it no longer applies to {path}: make it again"))
    }

    /// The same text as a module of this crate.
    fn relocated(&self, text: &str) -> String {
        let module = self.module();
        let shared = format!("crate::{module}::{SHARED}");
        let generated = format!("env!(\"OUT_DIR\"), \"/{module}/");
        text.replace(&format!("crate::{SHARED}"), &shared).replace("env!(\"OUT_DIR\"), \"/", &generated)
    }
}

/// What `git diff` writes between the files.
fn is_noise(line: &str) -> bool {
    line.starts_with("diff --git") || line.starts_with("index ")
}

/// Keeps the time of a file that would be the same, so that only what changed is compiled again.
fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if !fs::read_to_string(path).is_ok_and(|before| before == text) {
        fs::write(path, text)?;
    }
    Ok(())
}

/// The modules of all copies and the table of bugs.
fn registry(bugs: &[Bug], out: &Path) -> Result<String> {
    let (mut modules, mut table, mut visit) = (String::new(), String::new(), String::new());
    for bug in bugs {
        let (module, protocol) = (bug.module(), bug.protocol());
        let path = |folder: &str| out.join(&module).join(folder).join("mod.rs");
        let source = fs::read_to_string(path(protocol))?;
        let type_name = source
            .split_once("impl Protocol for ")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .with_context(|| format!("{protocol}/mod.rs implements no Protocol"))?;
        writeln!(modules, "/// {}", bug.story()?)?;
        writeln!(modules, "pub mod {module} {{")?;
        for folder in [SHARED, protocol] {
            writeln!(modules, "    #[path = {:?}]\n    pub mod {folder};", path(folder))?;
        }
        writeln!(modules, "}}")?;
        writeln!(
            table,
            "    Bug {{ name: {:?}, protocol: {protocol:?}, story: {:?}, published: {:?}, faults: {:?}, seed: {}, caught: {:?} }},",
            bug.name,
            bug.story()?,
            bug.field("Published")?,
            bug.field("Faults")?,
            bug.field("Seed")?.parse::<u64>()?,
            bug.field("Caught")?,
        )?;
        writeln!(visit, "        {:?} => Some(visitor.visit::<{module}::{protocol}::{type_name}>()),", bug.name)?;
    }
    Ok(format!(
        "{modules}
/// Every bug, by name.
pub const BUGS: &[Bug] = &[
{table}];

/// Hands the broken protocol of the bug called `name` to `visitor`; `None` if there is no such bug.
pub fn visit<V: dkvf_protocols::Visitor>(name: &str, visitor: V) -> Option<V::Output> {{
    match name {{
{visit}        _ => None,
    }}
}}
"
    ))
}

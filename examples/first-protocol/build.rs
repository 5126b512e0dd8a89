//! Compiles the metadata.

fn main() -> anyhow::Result<()> {
    dkvf_build::compile(&["src/primary.proto"])
}

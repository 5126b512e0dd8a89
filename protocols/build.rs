//! Compiles the metadata of every protocol, and that of the tests of generated code.

fn main() -> anyhow::Result<()> {
    let protocols = ["src/eventual/eventual.proto", "src/cops/cops.proto", "src/gentlerain/gentlerain.proto", "src/causalspartan/causalspartan.proto"];
    let fixtures = ["tests/fixtures/simple.proto", "tests/fixtures/nested.proto"];
    dkvf_build::compile(&[&protocols[..], &fixtures[..]].concat())
}

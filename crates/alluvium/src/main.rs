//! The `alluvium` binary.

fn main() -> std::process::ExitCode {
    alluvium::main(None)
}

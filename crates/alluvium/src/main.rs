//! The `alluvium` binary.

fn main() -> std::process::ExitCode {
    alluvium::main(alluvium_core::Hook::NONE)
}

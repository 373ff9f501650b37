//! Build script: tells the tests which optional resources this machine has.

mod machine;

fn main() {
    machine::tell();
}

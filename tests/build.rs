//! Tells the tests what this machine has.

mod machine;

fn main() {
    machine::tell();
}

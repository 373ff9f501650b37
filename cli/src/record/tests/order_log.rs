//! The reference page of order.log: the head of the module that writes it, and the fields of its
//! first line.

use super::super::order::GRADIENT;
use super::fields::Structs;
use super::table;
use crate::tests::assert_page;

const ORDER: &str = include_str!("../order.rs");

/// The head of the module, after its first paragraph.
fn head() -> String {
    let lines = ORDER.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.skip_while(|line| !line.is_empty()).skip(1).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_of_order_log_has_every_line_and_number() {
    let head = head();
    let page = format!(
        "# order.log\n\n`order.log` in a [results folder](../results.md) has the gradients of each \
         update, in the order in which they were combined: all that `pstrain replay` needs to \
         compute the parameters again. Events that are rare are in \
         [`events.jsonl`](events.md). This page is generated from the program.\n\n{head}\n\n\
         ## The first line\n{}",
        table(Structs::of(&[ORDER]).keys("Header"))
    );
    assert_page("order-log", &page);
    let numbers = head.split_once("| number | ").expect("the table of numbers").1;
    let numbers: Vec<&str> = numbers
        .lines()
        .skip(2)
        .map_while(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let of_reader: Vec<&str> =
        GRADIENT.split([',', '[', ']']).filter(|it| !it.is_empty()).collect();
    assert_eq!(numbers, of_reader);
}

//! Reference pages of the book that are generated from the program.

// With every feature, as the page is.
#[cfg(all(
    feature = "cert",
    feature = "metrics",
    feature = "pictures",
    feature = "shell",
    feature = "top"
))]
mod commands;

use std::path::Path;

/// Asserts that `docs/reference/NAME.md` is `page`; writes it first if `PSTRAIN_WRITE_PAGES` is
/// set.
pub(crate) fn assert_page(name: &str, page: &str) {
    let name = format!("docs/reference/{name}.md");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&name);
    if std::env::var_os("PSTRAIN_WRITE_PAGES").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "{name} differs from the program: write it with \
         `PSTRAIN_WRITE_PAGES=1 cargo test -p pstrain --lib page_of`"
    );
}

/// A row of a table in Markdown.
pub(crate) fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

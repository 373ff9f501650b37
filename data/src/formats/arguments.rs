//! The arguments of a format: paths and options (`NAME=VALUE`), separated by commas.

use std::path::PathBuf;

use pstrain_compute::likeness::nearest;

/// Splits arguments at their commas. A comma that belongs to an argument is written `\,`.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut all, mut last) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next_if_eq(&',').is_some() => last.push(','),
            ',' => all.push(std::mem::take(&mut last)),
            letter => last.push(letter),
        }
    }
    all.push(last);
    all
}

/// Writes arguments as [`split`] reads them.
pub(super) fn joined(arguments: &[String]) -> String {
    let escaped = arguments.iter().map(|argument| argument.replace(',', "\\,"));
    escaped.collect::<Vec<_>>().join(",")
}

/// The name and the value of an option `NAME=VALUE`.
pub(super) fn option(argument: &str) -> Option<(&str, &str)> {
    argument.split_once('=')
}

/// `; did you mean NAME?` if one of `known` resembles `name`.
pub(super) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// The arguments of a format of files.
pub(super) struct Arguments {
    form: &'static str,
    paths: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    /// Reads the arguments of a format that is written `form`. Those with the names `names` are
    /// options, all others paths.
    ///
    /// # Errors
    /// An option that is there twice, or whose name resembles one of `names`.
    pub(super) fn read(text: &str, form: &'static str, names: &[&str]) -> Result<Self, String> {
        let mut read = Self { form, paths: Vec::new(), options: Vec::new() };
        for argument in split(text) {
            let named = option(&argument).filter(|_| !read.paths.is_empty());
            match named {
                Some((name, value)) if names.contains(&name) => {
                    if read.option(name).is_some() {
                        return Err(format!("{name}= is there twice"));
                    }
                    read.options.push((name.to_owned(), value.to_owned()));
                }
                Some((name, _)) if nearest(name, names.iter().copied()).is_some() => {
                    let meant = meant(name, names.iter().copied());
                    return Err(format!("there is no option {name}{meant}"));
                }
                _ => read.paths.push(argument),
            }
        }
        Ok(read)
    }

    /// The value of the option `name`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(its, _)| its == name).map(|(_, value)| value.as_str())
    }

    /// The value of the option `name`, as `read` reads it.
    ///
    /// # Errors
    /// The words of `read` about what to write.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = |text: &str| read(text).map_err(|write| format!("{name}={text}: {write}"));
        self.option(name).map(value).transpose()
    }

    /// The paths.
    ///
    /// # Errors
    /// If one is empty.
    pub(super) fn paths(self) -> Result<Vec<PathBuf>, String> {
        if self.paths.iter().any(String::is_empty) {
            return Err(format!("a path is empty; write {}", self.form));
        }
        Ok(self.paths.into_iter().map(PathBuf::from).collect())
    }

    /// The paths, of which there must be `N`.
    ///
    /// # Errors
    /// If there are fewer or more, or one is empty.
    pub(super) fn exactly<const N: usize>(self) -> Result<[PathBuf; N], String> {
        let form = self.form;
        let excess = self.paths.get(N).and_then(|argument| option(argument));
        if let Some((name, _)) = excess {
            return Err(format!("there is no option {name}; write {form}"));
        }
        let needed = if N == 1 { "one path is" } else { "two files are" };
        let wrong = || format!("{needed} needed; write {form}");
        let paths = self.paths()?;
        paths.try_into().map_err(|_paths| wrong())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arguments_with_commas_come_back(
            arguments in proptest::collection::vec("[a-z,=/. ]{0,6}", 1..5)
        ) {
            prop_assert_eq!(split(&joined(&arguments)), arguments);
        }
    }

    #[test]
    fn options_are_told_from_paths_by_their_names() {
        let read = |text: &str| Arguments::read(text, "f:A,B[,rows=dense]", &["rows"]);
        let two = read(r"rows=a\,b,c=d,rows=dense").unwrap();
        assert_eq!(two.option("rows"), Some("dense"));
        assert_eq!(two.exactly::<2>().unwrap(), ["rows=a,b", "c=d"].map(PathBuf::from));
        let refused = |text: &str| match read(text) {
            Ok(read) => read.exactly::<2>().unwrap_err(),
            Err(error) => error,
        };
        for (text, told) in [
            ("a,b,row=dense", "there is no option row; did you mean rows?"),
            ("a,b,more=dense", "there is no option more; write f:A,B"),
            ("a,b,rows=1,rows=2", "rows= is there twice"),
            ("a", "two files are needed; write f:A,B"),
            (",b", "a path is empty; write f:A,B"),
        ] {
            assert!(refused(text).starts_with(told), "{text}: {}", refused(text));
        }
    }
}

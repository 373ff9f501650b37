//! Guesses the intended value for one that a setting does not accept.

use pstrain_compute::likeness;
use pstrain_policy::consistency::ConsistencySpec;

use super::settings::find;

/// Setting, a word of other programs or one that lacks its number, and the word here.
const WORDS: &[(&str, &str, &str)] = &[
    ("consistency", "sync", "bsp"),
    ("consistency", "synchronous", "bsp"),
    ("consistency", "bulk-synchronous", "bsp"),
    ("consistency", "dist-sync", "bsp"),
    ("consistency", "async", "asp"),
    ("consistency", "asynchronous", "asp"),
    ("consistency", "dist-async", "asp"),
    ("consistency", "hogwild", "asp"),
    ("consistency", "ssp", "ssp:3"),
    ("consistency", "stale", "ssp:3"),
    ("consistency", "stale-synchronous", "ssp:3"),
    ("consistency", "dssp", "dssp:2,8"),
    ("consistency", "delay", "delay:4"),
    ("consistency", "bounded-delay", "delay:4"),
    ("consistency", "k-sync", "k-sync:2"),
    ("consistency", "k-async", "k-async:2"),
    ("consistency", "k-batch-sync", "k-batch-sync:4"),
    ("consistency", "backup", "backup:1"),
    ("consistency", "buffered", "buffered:4"),
    ("consistency", "fedbuff", "buffered:4"),
    ("consistency", "rennala", "k-batch-sync:4"),
    ("consistency", "malenia", "malenia:4"),
    ("consistency", "ringmaster", "ringmaster:8"),
    ("model", "mlp", "mlp:21"),
    ("loss", "mse", "squared"),
    ("loss", "l2", "squared"),
    ("loss", "mae", "absolute"),
    ("loss", "l1", "absolute"),
    ("loss", "cross-entropy", "nll"),
    ("loss", "bce", "logistic"),
    ("partition", "dirichlet", "dirichlet:0.1"),
    ("partition", "non-iid", "paper-non-iid"),
    ("partition", "noniid", "paper-non-iid"),
    ("partition", "mix", "mix:0.5"),
    ("staleness", "inverse+1", "inverse-plus-one"),
    ("aggregation", "average", "mean"),
    ("aggregation", "avg", "mean"),
    ("aggregation", "trimmed", "trimmed:1"),
    ("aggregation", "trimmed-mean", "trimmed:1"),
    ("aggregation", "krum", "krum:1"),
    ("redundancy", "coding", "cyclic:1"),
    ("filters", "top-k", "top-k:0.01"),
    ("filters", "topk", "top-k:0.01"),
    ("filters", "random-k", "random-k:0.01"),
    ("filters", "quantize", "int8"),
    ("filters", "terngrad", "qsgd:1"),
];

/// The most likely value that was meant by `text` and that `accepts` accepts, if there is one.
pub(crate) fn suggestion(key: &str, text: &str, accepts: impl Fn(&str) -> bool) -> Option<String> {
    // Any text is a valid name or path.
    if matches!(key, "name" | "data") || accepts(text) {
        return None;
    }
    let candidates = match find(key) {
        _ if key == "switch" => switches(text),
        Some(setting) if setting.many && text.contains(' ') => items(key, text, &accepts),
        _ => candidates(key, text),
    };
    candidates.into_iter().find(|candidate| accepts(candidate))
}

/// Values that `text` may stand for, the most likely first.
fn candidates(key: &str, text: &str) -> Vec<String> {
    let lower = text.trim().to_lowercase();
    let dashed = lower.replace('_', "-");
    let tidy = dashed.replacen(['=', '(', ' '], ":", 1).replace(')', "");
    let mut all = vec![lower, dashed, tidy.clone()];
    let begin = tidy.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tidy.len());
    let (letters, digits) = tidy.split_at(begin);
    if !letters.contains(':') && !digits.is_empty() {
        let letters = letters.trim_end_matches('-');
        let words = [letters].into_iter().chain(alike(key, letters));
        all.extend(words.map(|word| format!("{word}:{digits}")));
        // A word may end with a digit itself.
        let rests = words_of(key).filter_map(|word| Some((word, tidy.strip_prefix(word)?)));
        all.extend(rests.map(|(word, rest)| format!("{word}:{rest}")));
    } else {
        all.push(format!("{letters}:{digits}"));
    }
    if key == "model" {
        all.push(layers(digits));
    }
    let (word, numbers) = match tidy.split_once(':') {
        Some((word, numbers)) => (word, format!(":{numbers}")),
        None => (tidy.as_str(), String::new()),
    };
    let ours = WORDS.iter().filter(|(setting, theirs, _)| *setting == key && *theirs == word);
    all.extend(ours.filter_map(|(.., ours)| match ours.split_once(':') {
        _ if numbers.is_empty() => Some((*ours).to_owned()),
        Some((word, _)) => Some(format!("{word}{numbers}")),
        None => None,
    }));
    // A word that is one of them lacks numbers: its form says which.
    if words_of(key).all(|known| known != word) {
        all.extend(alike(key, word).into_iter().map(|near| format!("{near}{numbers}")));
    }
    all
}

/// Hidden layers, written as `64x32` or as a whole network, `93-21-5`, as a value of `model`.
fn layers(text: &str) -> String {
    let widths = text.split(|letter: char| !letter.is_ascii_digit());
    let widths: Vec<&str> = widths.filter(|width| !width.is_empty()).collect();
    let hidden = match widths.as_slice() {
        [_inputs, hidden @ .., _classes] if text.contains('-') && !hidden.is_empty() => hidden,
        hidden => hidden,
    };
    format!("mlp:{}", hidden.join(","))
}

/// The words of the setting and of its help that resemble `word`, the most similar first.
fn alike(key: &str, word: &str) -> Vec<&'static str> {
    let help = find(key).map_or("", |setting| setting.help);
    let words = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    // `ring` is `all-reduce:ring`.
    let names = |known: &'static str| [Some(known), known.rsplit_once(':').map(|it| it.1)];
    let names = |known| names(known).into_iter().flatten().map(move |name| (name, known));
    likeness::alike(word, words_of(key).chain(words).flat_map(names))
}

/// The words of the setting.
fn words_of(key: &str) -> impl Iterator<Item = &'static str> {
    let words = find(key).map_or_else(Vec::new, |setting| setting.words.all());
    words.into_iter().map(|word| word.name)
}

/// Candidates for a list of items: each that is not accepted by itself is replaced.
fn items(key: &str, text: &str, accepts: &impl Fn(&str) -> bool) -> Vec<String> {
    let meant = |item: &str| {
        let meant = candidates(key, item).into_iter().find(|candidate| accepts(candidate));
        meant.unwrap_or_else(|| item.to_owned())
    };
    let item = |item: &str| if accepts(item) { item.to_owned() } else { meant(item) };
    vec![text.split_whitespace().map(item).collect::<Vec<_>>().join(" ")]
}

/// Candidates for the setting `switch`, where each item names a consistency.
fn switches(text: &str) -> Vec<String> {
    let is_consistency = |text: &str| text.parse::<ConsistencySpec>().is_ok();
    let item = |item: &str| match item.split_once('@') {
        Some((to, at)) => match suggestion("consistency", to, is_consistency) {
            Some(suggestion) => format!("{suggestion}@{at}"),
            None => item.to_owned(),
        },
        None => item.to_owned(),
    };
    vec![text.split_whitespace().map(item).collect::<Vec<_>>().join(" ")]
}

#[cfg(test)]
mod tests {
    use pstrain_compute::filter::Filters;
    use pstrain_compute::model::Activation;
    use pstrain_compute::optim::{OptimizerSpec, Proximal};
    use pstrain_data::PartitionSpec;
    use pstrain_policy::architecture::Architecture;
    use pstrain_policy::rules::StalenessSpec;

    use super::super::values;
    use super::*;

    fn consistency(text: &str) -> Option<String> {
        suggestion("consistency", text, |text| text.parse::<ConsistencySpec>().is_ok())
    }

    #[test]
    fn words_of_others_and_words_without_their_number_are_known() {
        for (text, wanted) in [
            ("sync", "bsp"),
            ("async", "asp"),
            ("ASYNC", "asp"),
            ("dist_sync", "bsp"),
            ("BSP", "bsp"),
            ("ssp", "ssp:3"),
            ("ssp=3", "ssp:3"),
            ("SSP(5)", "ssp:5"),
            ("ssp 5", "ssp:5"),
            ("ssp5", "ssp:5"),
            ("K_Sync:2", "k-sync:2"),
            ("round_robin", "round-robin"),
            ("roundrobin", "round-robin"),
            ("ringmastr:4", "ringmaster:4"),
            ("k-sync3", "k-sync:3"),
            ("ksync3", "k-sync:3"),
            ("ssp-3", "ssp:3"),
            ("rennala", "k-batch-sync:4"),
            ("rennala:20", "k-batch-sync:20"),
            ("fedbuff:10", "buffered:10"),
        ] {
            assert_eq!(consistency(text).as_deref(), Some(wanted), "{text}");
        }
        let none: Option<String> = None;
        for text in ["bsp", "ssp:-1", "tsp", "", "a:b:c", "ssp:"] {
            assert_eq!(consistency(text), none, "{text}");
        }
        let optimizer = |text: &str| {
            suggestion("optimizer", text, |text| text.parse::<OptimizerSpec>().is_ok())
                .unwrap_or_default()
        };
        assert_eq!(optimizer("Adam"), "adam");
        assert_eq!(optimizer("adamm"), "adam");
        assert_eq!(optimizer("sdg"), "sgd");
        let filters = |text: &str| {
            let accepts = |text: &str| Filters::read_chain(text).is_ok();
            suggestion("filters", text, accepts).unwrap_or_default()
        };
        assert_eq!(filters("topk0.01"), "top-k:0.01");
        assert_eq!(filters("terngrad"), "qsgd:1");
        assert_eq!(filters("top-k=0.01 int-8"), "top-k:0.01 int8");
        let proximal =
            |text: &str| suggestion("proximal", text, |text| text.parse::<Proximal>().is_ok());
        assert_eq!(proximal("l10.1").as_deref(), Some("l1:0.1"));
        let architecture = |text: &str| {
            suggestion("architecture", text, |text| text.parse::<Architecture>().is_ok())
        };
        assert_eq!(architecture("ring").as_deref(), Some("all-reduce:ring"));
        assert_eq!(optimizer("Momentum=0.9"), "momentum:0.9");
        let partition = |text: &str| {
            suggestion("partition", text, |text| text.parse::<PartitionSpec>().is_ok())
        };
        assert_eq!(partition("IID").as_deref(), Some("iid"));
        assert_eq!(partition("non-iid").as_deref(), Some("paper-non-iid"));
        let staleness = |text: &str| {
            suggestion("staleness", text, |text| text.parse::<StalenessSpec>().is_ok())
        };
        assert_eq!(staleness("inverse+1").as_deref(), Some("inverse-plus-one"));
    }

    #[test]
    fn layers_are_read_however_they_are_separated() {
        let model = |text: &str| {
            suggestion("model", text, |text| values::model(text, Activation::Relu).is_ok())
        };
        for text in ["64x32", "mlp:64x32", "MLP:64,32", "64-32", "mlp:64;32", "mlp 64,32"] {
            assert_eq!(model(text).as_deref(), Some("mlp:64,32"), "{text}");
        }
        assert_eq!(model("93-21-5").as_deref(), Some("mlp:21"));
        assert_eq!(model("cnn"), None);
    }

    #[test]
    fn each_consistency_of_a_switch_is_looked_at() {
        let switch = |text: &str| suggestion("switch", text, |text| values::switches(text).is_ok());
        assert_eq!(switch("async@1000 SSP=2@30s").as_deref(), Some("asp@1000 ssp:2@30s"));
        assert_eq!(switch("async"), None);
    }

    #[test]
    fn a_path_is_never_another_word() {
        assert_eq!(suggestion("data", "libsvm:", |_| false), None);
        assert_eq!(suggestion("data", "Sparse:x", |text| text == "sparse:x"), None);
    }
}

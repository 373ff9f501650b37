//! Specifications: shipped ones, valid values, refusals.

use super::*;

#[test]
fn what_is_shipped_can_be_run() {
    for shipped in pstrain_data::experiments() {
        let mut spec = Spec::find(shipped.name).unwrap();
        assert_eq!(spec.name, shipped.name);
        resolve(&mut spec, &[]).unwrap();
        for cell in &cells(&spec) {
            check_settings(&Run::new(&spec, cell, 0).unwrap()).unwrap();
        }
    }
    for (name, count, runs) in [
        ("paeleke-fig1", 4, 80),
        ("paeleke-fig2", 18, 360),
        ("paeleke-outlook", 462, 1386),
        ("osdi-failover", 108, 324),
    ] {
        let spec = Spec::find(name).unwrap();
        let count_made = cells(&spec).len();
        assert_eq!((count_made, count_made * spec.reps as usize), (count, runs), "{name}");
    }
}

#[test]
fn a_setting_of_every_run_may_be_given_but_not_one_that_is_swept() {
    let mut spec = Spec::parse("x", SWEEP).unwrap();
    let set = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    resolve(&mut spec, &set("link", "1.delay=3ms")).unwrap();
    assert_eq!(cells(&spec)[1].job["link"], "1.delay=3ms 2.delay=10ms");
    let refused = resolve(&mut spec, &set("consistency", "asp")).unwrap_err().to_string();
    assert!(refused.contains("axis consistency"), "{refused}");
    let refused = resolve(&mut spec, &set("epoch", "3")).unwrap_err().to_string();
    assert!(refused.contains("did you mean \"epochs\""), "{refused}");
    resolve(&mut spec, &set("data", "some/file.txt")).unwrap();
    assert!(Path::new(&spec.job["data"].0).is_absolute());
}

#[test]
fn a_bad_setting_is_found_before_anything_is_run() {
    let text = SWEEP.replace("'bsp', 'asp'", "'bsp', 'lockstep'");
    let mut spec = Spec::parse("x", &text).unwrap();
    resolve(&mut spec, &[]).unwrap();
    let cells = cells(&spec);
    let check = |cell: &Cell| check_settings(&Run::new(&spec, cell, 0).unwrap());
    check(&cells[0]).unwrap();
    let said = format!("{:#}", check(&cells[3]).unwrap_err());
    assert!(said.contains("consistency=lockstep delay=1") && said.contains("asp"), "{said}");
}

#[test]
fn what_is_wrong_with_a_specification_is_said() {
    for (from, to, said) in [
        ("title", "titel", "unknown field `titel`"),
        ("'made-up'", "'made up'", "letters, digits"),
        ("reps = 3", "reps = 0", "at least one"),
        ("epochs = 2", "epoch = 2", "did you mean \"epochs\""),
        ("epochs = 2", "epochs = [2]", "a number, a text or a list of texts"),
        ("epochs = 2", "consistency = 'bsp'", "and [job] too"),
        ("name = 'delay'", "name = 'consistency'", "two of this name"),
        ("[1, 10, 100]", "[1, 1]", "twice"),
        ("[1, 10, 100]", "[]", "no values"),
        ("{ link = '2.delay={}ms' }", "{ link = '2.delay=1ms' }", "has no {}"),
        (
            "{ link = '2.delay={}ms' }",
            "{ consistency = 'ssp:{}' }",
            "makes the setting consistency",
        ),
        ("set = { link = '2.delay={}ms' }", "labels = ['a']", "3 values have 1 labels"),
        ("set = { link = '2.delay={}ms' }", "", "no setting \"delay\""),
        ("file = 'curve'", "file = 'line'", "two pictures called \"line\""),
        ("where = { delay = 100 }", "", "what of the axis delay"),
        ("where = { delay = 100 }", "where = { delay = 7 }", "never is \"7\", but 1, 10, 100"),
        ("lines = ['consistency']", "lines = ['policy']", "no axis \"policy\""),
        ("kind = 'curve'", "kind = 'pie'", "unknown variant `pie`"),
        ("kind = 'heatmap'", "kind = 'heatmap'\nfrom = 1", "has no `from`"),
        ("kind = 'bar'", "kind = 'bar'\namong = { delay = [] }", "names some values"),
        ("value = 'epoch to accuracy 0.9'", "value = 'epoch to'", "no metric"),
        ("y = 'time_s'", "y = 'setting epoch'", "did you mean \"epochs\""),
        ("y = 'time_s'", "y = 'time_s'\nx-label = 'at [fast]'", "of consistency"),
        ("value = 'epoch to accuracy 0.9'", "value = '{time_s; delay=3}'", "never is \"3\""),
        ("kind = 'curve'", "kind = 'usage'", "usage shows up or down"),
        ("kind = 'line'", "kind = 'line'\nto = 3", "to is for usage"),
        ("unit = 'ms'", "unit = 'ms'\nsettings = { 7 = {} }", "settings: delay never is \"7\""),
        ("unit = 'ms'", "unit = 'ms'\nsettings = { 1 = {} }", "settings: it has none of \"10\""),
        (
            "unit = 'ms'",
            "unit = 'ms'\nsettings = { 1 = { epoch = 1 }, 10 = {}, 100 = {} }",
            "did you mean \"epochs\"",
        ),
    ] {
        let text = SWEEP.replacen(from, to, 1);
        assert!(text != SWEEP, "{from}");
        let error = Spec::parse("my.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("my.toml") && error.contains(said), "{to}: {error}");
    }
    for (claim, said) in [
        (claim("{time_s; consistency=bsp}", "measured > 1"), "names no value of delay"),
        (claim("{time_s; policy=bsp}", "measured > 1"), "no axis \"policy\""),
        (claim("{time_s; consistency=bsp, delay=2}", "measured > 1"), "never is \"2\""),
        (claim("{max time_s; consistency=bsp}", "measured > 1"), "max of what"),
        (claim("{time_s over delay; consistency=bsp}", "measured > 1"), "over an axis, begin with"),
        (claim("1 +", "measured > 1"), "no expression"),
        (claim("9e999", "measured > 1"), "no expression"),
        (claim(&"1+".repeat(6000), "measured > 1"), "measured has 12000 characters"),
        (claim("a", "measured > 1"), "names no value of consistency"),
        (claim("a", "measured > 1") + "[define]\na = 'b'\nb = '1 + a'\n", "defined by itself"),
        ("[[exclude]]\nconsistency = 'ssp'\n".into(), "never is \"ssp\""),
        (claim("1", "measured > 0") + "each = ['policy']\n", "no axis \"policy\""),
        (claim("1", "measured > 0") + "share = 0.5\n", "share is for claims with `each`"),
        (claim("1", "measured > 0") + "each = ['delay']\nshare = 2\n", "up to 1"),
        (claim("{time_s; delay=1}", "1 > 0") + "each = ['delay']\n", "no value of consistency"),
        (
            claim("{min time_s over delay but 1, 10, 100; consistency=bsp}", "1 > 0"),
            "leaves out all values",
        ),
        (claim("{min time_s over delay but 2; consistency=bsp}", "1 > 0"), "never is \"2\""),
        (claim("{time_s but 2; consistency=bsp}", "1 > 0"), "but belongs after over AXIS"),
        (table("rows = ['delay']", "value = '{time_s}'"), "names no value of consistency"),
        (table("rows = ['delay']", ""), "say `value` or `which`"),
        (
            table("rows = ['delay']", "which = 'max time_s over consistency'"),
            "must be an argmin or argmax",
        ),
    ] {
        let error = Spec::parse("my.toml", &format!("{SWEEP}{claim}")).unwrap_err().to_string();
        assert!(error.contains(said), "{claim}: {error}");
    }
}

#[test]
fn cells_whose_settings_do_not_go_together_are_named_before_the_first_run() {
    let text = SWEEP.replace("epochs = 2", "epochs = 2\ndata = 'synthetic:600'\ncompute = '1ms'");
    let checked = |text: &str, mode: Mode| {
        let mut spec = Spec::parse("x", text).unwrap();
        resolve(&mut spec, &[]).unwrap();
        let cells = cells(&spec);
        cells.iter().for_each(|cell| check_settings(&Run::new(&spec, cell, 0).unwrap()).unwrap());
        VirtualTime::default().check(&spec, &cells, mode).map_err(|error| error.to_string())
    };
    let text = text.replace("link = '2", "link = '1.delay=0ms 2");
    for mode in [Mode::VirtualTime, Mode::RealTime] {
        checked(&text, mode).unwrap();
        // `k-sync:5` with two workers, and more workers than rows.
        let said = checked(&text.replace("'asp'", "'k-sync:5'"), mode).unwrap_err();
        assert!(said.starts_with("3 of 6 cells cannot be run"), "{said}");
        assert!(said.contains("consistency=k-sync:5 delay=10: ") && said.contains("[[exclude]]"));
        let said = checked(&text.replace("synthetic:600", "synthetic:1"), mode).unwrap_err();
        assert!(said.starts_with("6 of 6 cells") && said.contains("and 1 more"), "{said}");
    }
    // Settings that are valid in only one of virtual and real time.
    let faulty = text.replace("compute = '1ms'", "compute = '1ms'\nfaults = '1.crash@1s'");
    checked(&faulty, Mode::VirtualTime).unwrap();
    let said = checked(&faulty, Mode::RealTime).unwrap_err();
    assert!(said.contains("virtual time only"), "{said}");
    let vague = text.replace("1.delay=0ms ", "");
    checked(&vague, Mode::RealTime).unwrap();
    let said = checked(&vague, Mode::VirtualTime).unwrap_err();
    assert!(said.contains("nothing is said about the link of worker 1"), "{said}");
}

//! Counterexamples as pictures.

use dkvf_check::picture::{Arrow, Bar, Diagram, Lane, Mark, Message, Place, Step, to_html};
use dkvf_check::{Anomaly, AnomalyKind, Edge, EdgeKind, History};

use crate::common::{Script, history};

fn write_skew() -> (History, Anomaly) {
    let history = history(
        "1: r x, w y 1
         2: r y, w x 2
         3: w x 3
         4: w z 4",
    );
    let anomaly = Anomaly {
        kind: AnomalyKind::WriteSkew,
        key: "x".to_owned(),
        operations: vec![0, 3, 2, 1],
        edges: vec![
            Edge {
                from: 0,
                to: 3,
                kind: EdgeKind::AntiDependency,
            },
            Edge {
                from: 2,
                to: 1,
                kind: EdgeKind::Inferred,
            },
        ],
        because: vec![
            "T0 < T1".to_owned(),
            "however, T1 < T0: a contradiction".to_owned(),
        ],
    };
    (history, anomaly)
}

/// Elements, attributes and texts of XML that is well-formed.
fn elements(xml: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    reader.config_mut().check_end_names = true;
    let mut names = Vec::new();
    let mut depth = 0;
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Start(element) => {
                depth += 1;
                names.push(element);
            }
            quick_xml::events::Event::Empty(element) => names.push(element),
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    let name = |element: quick_xml::events::BytesStart| {
        for attribute in element.attributes() {
            attribute.unwrap();
        }
        element.name().as_ref().to_owned()
    };
    names.into_iter().map(name).collect()
}

#[test]
fn an_anomaly_is_drawn_with_its_arrows_and_what_happened_around_it() {
    let (history, anomaly) = write_skew();
    let diagram = Diagram::of_anomaly(&history, &anomaly);
    let names: Vec<&str> = diagram.bars.iter().map(|bar| bar.name.as_str()).collect();
    assert_eq!(names, ["T0", "T1"], "T2 and T3 come later");
    assert_eq!(diagram.lanes.len(), 2);
    let labels: Vec<&str> = diagram
        .arrows
        .iter()
        .map(|arrow| arrow.label.as_str())
        .collect();
    assert_eq!(labels, ["rw x", "inferred"]);
    assert_eq!(diagram.arrows[0].to, Place { bar: 1, step: 1 });
    assert!(diagram.arrows[1].is_dashed && !diagram.arrows[0].is_dashed);
}

#[test]
fn operations_on_the_same_keys_at_that_time_are_shown_faintly() {
    let mut script = Script::default();
    let first = script.w(1, "a");
    script.w(2, "b");
    script.write(3, "", "y", "c");
    let last = script.r(1, "");
    let anomaly = Anomaly {
        kind: AnomalyKind::OwnWriteMissed,
        key: "x".to_owned(),
        operations: vec![first, last],
        edges: Vec::new(),
        because: Vec::new(),
    };
    let diagram = Diagram::of_anomaly(&script.history, &anomaly);
    let bars: Vec<(&str, bool)> = diagram
        .bars
        .iter()
        .map(|bar| (bar.steps[0].text.as_str(), bar.is_involved))
        .collect();
    assert_eq!(
        bars,
        [
            ("wrote x = a", true),
            ("wrote x = b", false),
            ("read x = initial", true)
        ]
    );
}

#[test]
fn text_shows_lanes_arrows_and_argument() {
    let (history, anomaly) = write_skew();
    let diagram = Diagram::of_anomaly(&history, &anomaly);
    assert_eq!(
        diagram.to_text(),
        "\
write-skew on key x
  session 1 [T0: #0 read x = initial; #1 wrote y = 1]---------------------------------------------
  session 2 --------------------------------------------[T1: #2 read y = initial; #3 wrote x = 2]-
            |0 us                                    |5 us                                       |15 us

  T0 #0 -rw x-> T1 #3
  T1 #2 .inferred.> T0 #1

T0 < T1
however, T1 < T0: a contradiction
"
    );
}

#[test]
fn wide_charts_name_their_operations_and_list_them() {
    let mut script = Script::default();
    for value in 0..12 {
        script.w(value % 2, &format!("a-long-value-{value}"));
    }
    let anomaly = Anomaly {
        kind: AnomalyKind::DirtyWrite,
        key: "x".to_owned(),
        operations: (0..12).collect(),
        edges: Vec::new(),
        because: Vec::new(),
    };
    let text = Diagram::of_anomaly(&script.history, &anomaly).to_text();
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= 120, "{text}");
    assert!(text.contains("[#11]"), "{text}");
    assert!(
        text.contains("\n  #11 wrote x = a-long-value-11\n"),
        "{text}"
    );
}

#[test]
fn graphs_have_a_node_for_each_step_and_an_edge_for_each_arrow() {
    let (history, anomaly) = write_skew();
    let diagram = Diagram::of_anomaly(&history, &anomaly);
    let dot = diagram.to_dot();
    assert!(
        dot.contains("b0 [label=\"T0 | <s0> #0 read x = initial | <s1> #1 wrote y = 1\"];"),
        "{dot}"
    );
    assert!(dot.contains("b0:s0 -> b1:s1 [label=\"rw x\"];"), "{dot}");
    assert!(
        dot.contains("b1:s0 -> b0:s1 [label=\"inferred\", style=dashed];"),
        "{dot}"
    );
    let mermaid = diagram.to_mermaid();
    assert!(
        mermaid.contains("b0s0[\"T0 #35;0 read x = initial\"]"),
        "{mermaid}"
    );
    assert!(
        mermaid.contains("b1s0 -.->|\"inferred\"| b0s1"),
        "{mermaid}"
    );
}

/// Everything that a text could be taken for.
const HOSTILE: &str =
    "</text><script>alert(1)</script>\"' & ]]> -->\0\u{ffff}\u{202e}{|}\\\n\"]; a -> b";

fn hostile() -> Diagram {
    let text = || HOSTILE.to_owned();
    Diagram {
        title: text(),
        verdict: text(),
        caption: vec![text()],
        lanes: vec![Lane {
            name: text(),
            group: text(),
        }],
        bars: vec![Bar {
            name: text(),
            detail: text(),
            steps: vec![Step {
                name: text(),
                text: text(),
                detail: text(),
                is_involved: true,
            }],
            ..Bar::default()
        }],
        arrows: vec![Arrow {
            from: Place { bar: 0, step: 0 },
            to: Place { bar: 0, step: 0 },
            kind: EdgeKind::Session,
            label: text(),
            is_dashed: false,
        }],
        marks: vec![Mark {
            text: text(),
            detail: text(),
            ..Mark::default()
        }],
        messages: vec![Message {
            text: text(),
            detail: text(),
            received_us: Some(9),
            ..Message::default()
        }],
    }
}

#[test]
fn hostile_text_stays_text() {
    let diagram = hostile();
    let known = ["svg", "title", "style", "rect", "line", "path", "g", "text"];
    for name in elements(&diagram.to_svg()) {
        assert!(known.contains(&name.as_str()), "{name}");
    }
    let page = to_html(HOSTILE, std::slice::from_ref(&diagram));
    assert!(!page.contains("<script") && !page.contains('\0'), "{page}");
    for graph in [diagram.to_dot(), diagram.to_mermaid()] {
        assert!(!graph.contains("\n\"];"), "{graph}");
    }
    let dot = diagram.to_dot();
    assert!(!dot.contains("script>\""), "every quote is escaped: {dot}");
}

#[test]
fn a_page_refers_to_nothing_outside_of_itself() {
    let (history, anomaly) = write_skew();
    let diagram = Diagram::of_anomaly(&history, &anomaly);
    let page = to_html("two", &[diagram.clone(), diagram]);
    assert_eq!(page.matches("<svg").count(), 2);
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http", "src=", "href=", "url(", "@import"] {
        assert!(!outside.contains(reference), "{reference}");
    }
}

#[test]
fn huge_diagrams_are_cut_and_say_so() {
    let step = Step {
        text: "y".repeat(5_000),
        ..Step::default()
    };
    let bar = Bar {
        steps: vec![step; 20],
        ..Bar::default()
    };
    let place = |bar| Place { bar, step: 0 };
    let arrow = |from| Arrow {
        from: place(from),
        to: place(0),
        kind: EdgeKind::Session,
        label: String::new(),
        is_dashed: false,
    };
    let diagram = Diagram {
        lanes: vec![Lane::default(); 100],
        bars: vec![bar; 500],
        arrows: vec![arrow(499), arrow(7), arrow(1 << 40)],
        messages: vec![Message::default(); 5_000],
        ..Diagram::default()
    };
    let svg = diagram.to_svg();
    assert!(svg.len() < 4 << 20, "{}", svg.len());
    assert!(
        svg.contains("Not shown: 36 lanes, 100 bars, 2 arrows, 4000 messages."),
        "it says what is missing"
    );
}

#[test]
fn an_empty_diagram_is_a_picture() {
    let diagram = Diagram::default();
    assert!(!elements(&diagram.to_svg()).is_empty());
    assert_eq!(diagram.to_text(), "");
}

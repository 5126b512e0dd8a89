//! Pictures as a page that works without a network.

use super::diagram::Diagram;
use super::words::{escape_xml, printable};

const SHEET: &str = "
:root{color-scheme:light dark}
body{margin:1.5rem;font:14px/1.5 system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif;background:#fff;color:#1f2328}
figure{margin:0 0 2.5rem}
.picture{overflow-x:auto;border:1px solid #d0d7de;border-radius:8px}
.picture svg{display:block}
pre{overflow-x:auto;padding:1rem;border-radius:8px;background:#f6f8fa;font-size:12px;line-height:1.45}
summary{cursor:pointer;padding:.4rem 0}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.picture{border-color:#30363d}pre{background:#161b22}}
";

/// A self-contained page with these diagrams, each as a picture and, for copying and for screen readers, as text.
pub fn to_html(title: &str, diagrams: &[Diagram]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{SHEET}</style>\n</head>\n<body>\n",
        escape_xml(&printable(title))
    );
    for diagram in diagrams {
        page += "<figure>\n<div class=\"picture\">\n";
        page += &diagram.to_svg();
        page += "</div>\n<figcaption><details><summary>as text</summary>\n<pre>";
        page += &escape_xml(&diagram.to_text());
        page += "</pre></details></figcaption>\n</figure>\n";
    }
    page += "</body>\n</html>\n";
    page
}

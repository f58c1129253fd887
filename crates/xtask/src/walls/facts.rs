//! The facts of one Rust file that the walls ask about: its modules with imports and mentioned
//! paths, its functions with their lengths, its types, its tests. A syntax tree cannot leave its
//! thread, and the facts can.
//!
//! Names are read and not compiled. A path inside a macro call is found where it is written as a
//! path. A name that a macro builds is not found.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// What is known of a file.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The module that the file is, followed by the modules inside the file.
    pub(super) modules: Vec<Module>,
    /// Every function with a body, tests included.
    pub(super) functions: Vec<Function>,
    /// Types and traits, tests left out.
    pub(super) types: Vec<Named>,
    /// Methods that are called, tests left out.
    pub(super) calls: Vec<Named>,
    /// Names of test functions, and names that are passed to macros which make tests.
    pub(super) tests: BTreeSet<String>,
}

/// A module, tests left out.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The names of modules from the file's own module to this one.
    pub(super) path: Vec<String>,
    /// Names of items that are defined here.
    pub(super) items: BTreeSet<String>,
    /// The modules that are declared here.
    pub(super) children: Vec<Child>,
    /// Imports, one for each name.
    pub(super) uses: Vec<Use>,
    /// Paths in code.
    pub(super) mentions: Vec<Mention>,
}

/// `mod NAME;` or `mod NAME { … }`.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) name: String,
    /// The value of `#[path]`.
    pub(super) path: Option<String>,
    /// The index of the module, if the module is inside the file.
    pub(super) inside: Option<usize>,
    /// The line of the declaration.
    pub(super) line: usize,
}

/// A name that is imported.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// The name in this module; `None` for `*`.
    pub(super) name: Option<String>,
    pub(super) line: usize,
    /// Whether the import is `pub`, `pub(crate)` and so on: it passes a name on, and the file
    /// itself needs the name only where it mentions the name.
    pub(super) passes_on: bool,
}

/// A path in code.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of the word `fn`.
    pub(super) line: usize,
    /// Lines from there to the closing brace.
    pub(super) lines: usize,
}

/// A name and its line.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) line: usize,
}

impl Facts {
    /// Reads a file. `is_test` is for files of which every item is a test.
    pub(super) fn read(text: &str, is_test: bool) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let facts = Self { modules: vec![Module::default()], ..Self::default() };
        let mut reader =
            Reader { facts, module: 0, tests: usize::from(is_test), bodies: Vec::new() };
        reader.visit_file(&file);
        Ok(reader.facts)
    }
}

/// Walks over a file.
struct Reader {
    facts: Facts,
    /// The module that is walked over.
    module: usize,
    /// How many items around the present one exist in tests alone.
    tests: usize,
    /// The functions around the present place.
    bodies: Vec<Body>,
}

/// The names in a function: a name of one segment is a local variable, if the function has one of
/// that name anywhere.
#[derive(Default)]
struct Body {
    variables: BTreeSet<String>,
    single: Vec<Mention>,
}

impl Reader {
    fn here(&mut self) -> &mut Module {
        &mut self.facts.modules[self.module]
    }

    fn mention(&mut self, path: Vec<String>, line: usize) {
        if self.tests > 0 {
            return;
        }
        let mention = Mention { path, line };
        match self.bodies.last_mut() {
            Some(body) if mention.path.len() == 1 => body.single.push(mention),
            _ => self.here().mentions.push(mention),
        }
    }

    fn call(&mut self, name: String, at: Span) {
        if self.tests == 0 {
            self.facts.calls.push(Named { name, line: line(at) });
        }
    }

    fn define(&mut self, name: &syn::Ident) {
        // An item inside a function is visible in that function alone.
        if self.tests == 0 && self.bodies.is_empty() {
            self.here().items.insert(plain(name));
        }
    }

    fn define_type(&mut self, name: &syn::Ident) {
        self.define(name);
        if self.tests == 0 {
            self.facts.types.push(Named { name: plain(name), line: line(name.span()) });
        }
    }

    fn function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        attributes: &[syn::Attribute],
        walk: impl FnOnce(&mut Self),
    ) {
        let from = line(signature.fn_token.span);
        let to = block.brace_token.span.close().end().line;
        let name = plain(&signature.ident);
        if attributes.iter().any(is_test_attribute) {
            self.facts.tests.insert(name.clone());
        }
        self.facts.functions.push(Function { name, line: from, lines: to + 1 - from });
        self.bodies.push(Body::default());
        walk(self);
        let body = self.bodies.pop().unwrap_or_default();
        let mentions = body.single.into_iter();
        let free = mentions.filter(|mention| !body.variables.contains(&mention.path[0]));
        self.facts.modules[self.module].mentions.extend(free);
    }

    fn only_in_tests(&mut self, attributes: &[syn::Attribute], walk: impl FnOnce(&mut Self)) {
        let is_test = usize::from(attributes.iter().any(is_for_tests));
        self.tests += is_test;
        walk(self);
        self.tests -= is_test;
    }

    fn import(&mut self, tree: &syn::UseTree, path: &mut Vec<String>, passes_on: bool) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(plain(&part.ident));
                self.import(&part.tree, path, passes_on);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path, passes_on);
                }
            }
            syn::UseTree::Name(leaf) if leaf.ident == "self" => {
                let name = path.last().cloned();
                self.imported(path.clone(), name, leaf.ident.span(), passes_on);
            }
            syn::UseTree::Name(leaf) => {
                let name = plain(&leaf.ident);
                let path = with(path, &name);
                self.imported(path, Some(name), leaf.ident.span(), passes_on);
            }
            syn::UseTree::Rename(leaf) => {
                let own = leaf.ident == "self";
                let path = if own { path.clone() } else { with(path, &plain(&leaf.ident)) };
                self.imported(path, Some(plain(&leaf.rename)), leaf.ident.span(), passes_on);
            }
            syn::UseTree::Glob(leaf) => {
                self.imported(path.clone(), None, leaf.star_token.span, passes_on);
            }
        }
    }

    fn imported(&mut self, path: Vec<String>, name: Option<String>, at: Span, passes_on: bool) {
        self.here().uses.push(Use { path, name, line: line(at), passes_on });
    }

    /// Paths among the tokens of a macro or an attribute.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    at + 1
                }
                TokenTree::Ident(_) => self.token_path(&tokens, at),
                TokenTree::Literal(literal) => {
                    self.text_path(literal);
                    at + 1
                }
                TokenTree::Punct(_) => at + 1,
            };
        }
    }

    /// A path whose first name is at `from`; returns where the path ends.
    fn token_path(&mut self, tokens: &[TokenTree], from: usize) -> usize {
        let mut path = Vec::new();
        let mut at = from;
        while let Some(TokenTree::Ident(name)) = tokens.get(at) {
            path.push(plain(name));
            at += 1;
            if !is_colons(tokens, at) {
                break;
            }
            at += 2;
        }
        let before = |back: usize| from.checked_sub(back).map(|at| &tokens[at]);
        // `.field`, `.method()`, and `::outer::path`.
        let is_inner = before(1).is_some_and(|token| is_punct(token, '.'))
            || before(2).is_some_and(|_| is_colons(tokens, from - 2));
        if path.first().is_some_and(|name| name == "fn")
            && let Some(TokenTree::Ident(name)) = tokens.get(at)
        {
            self.facts.tests.insert(plain(name));
            return at + 1;
        }
        let is_method = is_inner && path.len() == 1;
        if is_method && matches!(tokens.get(at), Some(TokenTree::Group(_))) {
            self.call(path.swap_remove(0), tokens[from].span());
        }
        if is_inner {
            return at.max(from + 1);
        }
        let is_call = matches!(tokens.get(at), Some(TokenTree::Group(group))
            if group.delimiter() == Delimiter::Parenthesis)
            || tokens.get(at).is_some_and(|token| is_punct(token, '!'));
        let is_type = path[0].starts_with(char::is_uppercase);
        if path.len() > 1 || is_call || is_type {
            self.mention(path, line(tokens[from].span()));
        }
        at.max(from + 1)
    }

    /// A text in an attribute may be a path, as in `#[serde(with = "crate::a::b")]`.
    fn text_path(&mut self, literal: &proc_macro2::Literal) {
        let text = literal.to_string();
        let Some(text) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return;
        };
        let path: Vec<_> = text.split("::").map(str::to_owned).collect();
        let is_name = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        let is_own = ["crate", "super", "self"].contains(&path[0].as_str());
        if is_own && path.len() > 1 && path.iter().all(is_name) {
            self.mention(path, line(literal.span()));
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.only_in_tests(attributes_of(item), |reader| visit::visit_item(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.only_in_tests(&item.attrs, |reader| {
            reader.function(&item.sig, &item.block, &item.attrs, |reader| {
                visit::visit_impl_item_fn(reader, item);
            });
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        match &item.default {
            Some(block) => self.function(&item.sig, block, &item.attrs, |reader| {
                visit::visit_trait_item_fn(reader, item);
            }),
            None => visit::visit_trait_item_fn(self, item),
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.define(&item.sig.ident);
        self.function(&item.sig, &item.block, &item.attrs, |reader| {
            visit::visit_item_fn(reader, item);
        });
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define_type(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define_type(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.define_type(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define_type(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define_type(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.define(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.define(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        match &item.ident {
            Some(name) => self.define(name),
            // `case!(name, …)` may make a test of that name.
            None => {
                if let Some(TokenTree::Ident(name)) = item.mac.tokens.clone().into_iter().next() {
                    self.facts.tests.insert(plain(&name));
                }
            }
        }
        visit::visit_item_macro(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.tests > 0 || item.leading_colon.is_some() {
            return;
        }
        let passes_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &mut Vec::new(), passes_on);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if self.tests > 0 {
            visit::visit_item_mod(self, item);
            return;
        }
        let name = plain(&item.ident);
        let inside = item.content.as_ref().map(|_| self.facts.modules.len());
        let declared = line(item.ident.span());
        let child =
            Child { name: name.clone(), path: path_of(&item.attrs), inside, line: declared };
        self.here().children.push(child);
        if let Some(inside) = inside {
            let path = with(&self.here().path, &name);
            self.facts.modules.push(Module { path, ..Module::default() });
            let outer = std::mem::replace(&mut self.module, inside);
            visit::visit_item_mod(self, item);
            self.module = outer;
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let names = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
            self.mention(names, line(first.ident.span()));
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.call(plain(&call.method), call.method.span());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if let Some(body) = self.bodies.last_mut() {
            body.variables.insert(plain(&pattern.ident));
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        // Attributes and derives are names of other crates; their arguments may be paths of ours.
        if let syn::Meta::List(list) = &attribute.meta
            && !attribute.path().is_ident("cfg")
        {
            self.tokens(list.tokens.clone());
        }
    }
}

/// A name without `r#`.
fn plain(name: &syn::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or_else(|| name.clone(), str::to_owned)
}

fn with(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

fn line(span: Span) -> usize {
    let LineColumn { line, .. } = span.start();
    line
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| tokens.get(at).is_some_and(|token| is_punct(token, ':'));
    is_colon(at) && is_colon(at + 1)
}

/// `#[test]`, `#[tokio::test]` and the like.
fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

/// `#[cfg(test)]` and conditions that hold in tests alone; `#[test]` itself.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        return attribute.parse_args::<syn::Meta>().is_ok_and(|condition| needs_tests(&condition));
    }
    is_test_attribute(attribute)
}

fn needs_tests(condition: &syn::Meta) -> bool {
    let syn::Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let inner = list.parse_args_with(
        syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
    );
    let Ok(inner) = inner else { return false };
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("all") => inner.iter().any(needs_tests),
        Some("any") => !inner.is_empty() && inner.iter().all(needs_tests),
        _ => false,
    }
}

/// The value of `#[path = "…"]`.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(literal) = &pair.value else { return None };
        let syn::Lit::Str(text) = &literal.lit else { return None };
        pair.path.is_ident("path").then(|| text.value())
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Verbatim(_) | _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Facts {
        Facts::read(text, false).unwrap()
    }

    fn uses(facts: &Facts) -> Vec<String> {
        let text = |used: &Use| {
            let name = used.name.as_deref().unwrap_or("*");
            let kind = if used.passes_on { "pub " } else { "" };
            format!("{kind}{} as {name}", used.path.join("::"))
        };
        facts.modules[0].uses.iter().map(text).collect()
    }

    fn mentions(facts: &Facts) -> Vec<String> {
        facts.modules[0].mentions.iter().map(|mention| mention.path.join("::")).collect()
    }

    #[test]
    fn imports_are_read_one_by_one() {
        let facts = read("use a::{self, b::C, D as E, f::*};\npub(crate) use crate::g::r#type;");
        let expected =
            ["a as a", "a::b::C as C", "a::D as E", "a::f as *", "pub crate::g::type as type"];
        assert_eq!(uses(&facts), expected);
        assert_eq!(facts.modules[0].uses[4].line, 2);
    }

    #[test]
    fn what_exists_in_tests_alone_is_left_out() {
        let facts = read(
            "#[cfg(test)] mod tests { use super::X; struct Y; #[test] fn it_holds() {} }\n\
             #[cfg(all(test, unix))] use a::B;\n\
             #[cfg(not(test))] use a::C;\n\
             impl Z { #[cfg(test)] fn f() { a::g() } }",
        );
        assert_eq!(uses(&facts), ["a::C as C"]);
        assert!(facts.types.is_empty() && facts.modules[0].children.is_empty());
        assert!(!mentions(&facts).iter().any(|path| path == "a::g"));
        assert!(facts.tests.contains("it_holds"));
        assert_eq!(facts.functions.len(), 2);
    }

    #[test]
    fn paths_in_code_macros_and_attributes_are_found() {
        let facts = read(
            "#[serde(with = \"crate::form\")]\nstruct A { b: super::B }\n\
             fn f() { let x = self::y::Z; log!(x.field, \"{}\", c::d(), outer::E { .. }); }",
        );
        for path in ["crate::form", "super::B", "self::y::Z", "c::d", "outer::E"] {
            assert!(mentions(&facts).iter().any(|found| found == path), "{path}");
        }
        assert!(!mentions(&facts).iter().any(|found| found == "field"));
    }

    #[test]
    fn a_local_variable_is_no_import() {
        let facts = read("fn f(near: u8) { near; far(); let far = 1; thing() }");
        assert_eq!(mentions(&facts), ["u8", "thing"]);
    }

    #[test]
    fn functions_have_the_lines_from_fn_to_the_brace() {
        let facts = read("/// Words.\nfn f(\n) {\n    g()\n}\nimpl A {\n    fn g() {}\n}");
        let all = facts.functions.iter();
        let found: Vec<_> = all.map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("f", 2, 4), ("g", 7, 1)]);
    }

    #[test]
    fn tests_of_macros_have_names() {
        let facts = read("proptest! { #[test] fn any_bytes_pass(x in 0..9) {} }\ncase!(one, 1);");
        assert!(facts.tests.contains("any_bytes_pass") && facts.tests.contains("one"));
    }
}

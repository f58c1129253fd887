//! The attributes of a struct and of its fields.

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, GenericArgument, Ident, Lit, LitInt,
    LitStr, Meta, PathArguments, Result, Token, Type, parenthesized,
};

/// A struct that declares the keys of a map.
pub(crate) struct Declared {
    pub(crate) name: Ident,
    pub(crate) rows: Vec<RowSpec>,
    /// Fields that are no key.
    pub(crate) rest: Vec<Ident>,
    /// The function that reads the map.
    pub(crate) read: Option<Expr>,
    /// The function that reads values with `from`.
    pub(crate) first: Option<Expr>,
    /// The function that checks the values together.
    pub(crate) check: Option<Expr>,
    /// The path of the map, if two values are compared key by key.
    pub(crate) compare: Option<String>,
    pub(crate) later: Vec<String>,
    /// Whether the keys are declared alone, and other code reads them.
    pub(crate) is_rows: bool,
}

/// A key.
#[derive(Default)]
pub(crate) struct RowSpec {
    pub(crate) key: String,
    /// The field with the value; `None` for a row of its own.
    pub(crate) field: Option<(Ident, Type)>,
    pub(crate) sentence: String,
    /// The text of the type; `None` for a map.
    pub(crate) is: Option<Expr>,
    pub(crate) absent: Absent,
    pub(crate) note: Option<String>,
    pub(crate) change: Option<Ident>,
    pub(crate) read: Option<Expr>,
    pub(crate) with: Option<Expr>,
    pub(crate) differs: Option<Expr>,
    pub(crate) map: Option<Map>,
    pub(crate) only: Vec<Ident>,
    pub(crate) holds: Option<Ident>,
    pub(crate) unit: Option<String>,
    pub(crate) since: Option<String>,
    /// The path of the key, declared by another type, whose value the field is.
    pub(crate) part: Option<String>,
    /// The value, as a part of the value of `first`.
    pub(crate) from: Option<Expr>,
    pub(crate) rank: Option<LitInt>,
    pub(crate) is_each: bool,
    pub(crate) is_compared: bool,
}

/// The map that is the value of a key.
#[derive(Default)]
pub(crate) struct Map {
    pub(crate) is_list: bool,
    pub(crate) keys: Option<Type>,
    pub(crate) of: String,
    pub(crate) at: Option<Ident>,
}

/// The meaning of an absent key.
pub(crate) enum Absent {
    /// The key has this value.
    Default(String),
    /// The key has no value; the text is for readers.
    None(String),
    /// The key must be present; the text is the hint.
    Required(Option<String>),
}

impl Default for Absent {
    fn default() -> Self {
        Self::None(String::new())
    }
}

pub(crate) fn section(input: &DeriveInput) -> Result<Declared> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "the keys of a map are the fields of a struct"));
    };
    let mut section = Declared {
        name: input.ident.clone(),
        rows: Vec::new(),
        rest: Vec::new(),
        read: None,
        first: None,
        check: None,
        compare: None,
        later: Vec::new(),
        is_rows: false,
    };
    for attribute in input.attrs.iter().filter(|one| one.path().is_ident("keys")) {
        attribute.parse_nested_meta(|meta| of_section(&mut section, &meta))?;
    }
    for field in &data.fields {
        let Some(name) = field.ident.clone() else { continue };
        match field.attrs.iter().find(|one| one.path().is_ident("key")) {
            Some(attribute) => section.rows.push(of_field(&name, field, attribute)?),
            None => section.rest.push(name),
        }
        for attribute in field.attrs.iter().filter(|one| one.path().is_ident("row")) {
            section.rows.push(of_row(attribute)?);
        }
    }
    for attribute in input.attrs.iter().filter(|one| one.path().is_ident("row")) {
        section.rows.push(of_row(attribute)?);
    }
    Ok(section)
}

fn of_section(section: &mut Declared, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.path.is_ident("read") {
        section.read = Some(meta.value()?.parse()?);
    } else if meta.path.is_ident("first") {
        section.first = Some(meta.value()?.parse()?);
    } else if meta.path.is_ident("check") {
        section.check = Some(meta.value()?.parse()?);
    } else if meta.path.is_ident("compare") {
        section.compare = Some(optional_text(meta)?.unwrap_or_default());
    } else if meta.path.is_ident("rows") {
        section.is_rows = true;
    } else if meta.path.is_ident("later") {
        let content;
        parenthesized!(content in meta.input);
        let all = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
        section.later = all.iter().map(LitStr::value).collect();
    } else {
        return Err(meta.error("unknown attribute"));
    }
    Ok(())
}

fn of_field(name: &Ident, field: &Field, attribute: &Attribute) -> Result<RowSpec> {
    let mut row = RowSpec::new(name.to_string(), sentence(&field.attrs));
    row.field = Some((name.clone(), field.ty.clone()));
    row.fill(attribute)?;
    Ok(row)
}

fn of_row(attribute: &Attribute) -> Result<RowSpec> {
    let mut row = RowSpec::new(String::new(), String::new());
    row.fill(attribute)?;
    if row.key.is_empty() && row.part.is_none() {
        return Err(Error::new_spanned(attribute, "the first word is the key"));
    }
    Ok(row)
}

impl RowSpec {
    fn new(key: String, sentence: String) -> Self {
        Self { key, sentence, ..Self::default() }
    }

    /// The type inside `Option` or `Vec`, and which of them it is.
    pub(crate) fn inner<'t>(ty: &'t Type, outer: &str) -> Option<&'t Type> {
        let Type::Path(path) = ty else { return None };
        let last = path.path.segments.last().filter(|last| last.ident == outer)?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        match arguments.args.first() {
            Some(GenericArgument::Type(inner)) => Some(inner),
            _ => None,
        }
    }

    /// Whether this is a key, and no value that another type declares.
    pub(crate) fn is_key(&self) -> bool {
        self.is.is_some() || self.map.is_some()
    }

    fn fill(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
            if self.field.is_none() && input.peek2(Token![:]) {
                self.key = <Ident as syn::ext::IdentExt>::parse_any(input)?.to_string();
                input.parse::<Token![:]>()?;
            }
            while !input.is_empty() {
                if input.peek(LitStr) {
                    self.is = Some(input.parse()?);
                } else {
                    self.one(input)?;
                }
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        })
    }

    fn one(&mut self, input: syn::parse::ParseStream<'_>) -> Result<()> {
        let word = <Ident as syn::ext::IdentExt>::parse_any(input)?;
        let text = |input: syn::parse::ParseStream<'_>| -> Result<String> {
            input.parse::<Token![=]>()?;
            Ok(input.parse::<LitStr>()?.value())
        };
        let optional = |input: syn::parse::ParseStream<'_>| -> Result<Option<String>> {
            if input.peek(Token![=]) { text(input).map(Some) } else { Ok(None) }
        };
        let expr = |input: syn::parse::ParseStream<'_>| -> Result<Expr> {
            input.parse::<Token![=]>()?;
            input.parse()
        };
        match word.to_string().as_str() {
            "default" => self.absent = Absent::Default(text(input)?),
            "none" => {
                let note = optional(input)?;
                let note = note.map_or_else(|| "none".into(), |note| format!("none ({note})"));
                self.absent = Absent::None(note);
            }
            "absent" => self.absent = Absent::None(text(input)?),
            "required" => self.absent = Absent::Required(optional(input)?),
            "note" => self.note = Some(text(input)?),
            "live" | "reconnect" | "restart" => self.change = Some(word),
            "read" => self.read = Some(expr(input)?),
            "with" => self.with = Some(expr(input)?),
            "differs" => self.differs = Some(expr(input)?),
            "each" => self.is_each = true,
            "compare" => self.is_compared = true,
            "flat" => {
                self.map.get_or_insert_default();
                self.key.clear();
            }
            "map" => drop(self.map.get_or_insert_default()),
            "list" => self.map.get_or_insert_default().is_list = true,
            "keys" => {
                input.parse::<Token![=]>()?;
                self.map.get_or_insert_default().keys = Some(input.parse()?);
            }
            "of" => self.map.get_or_insert_default().of = text(input)?,
            "at" => {
                input.parse::<Token![=]>()?;
                self.map.get_or_insert_default().at = Some(input.parse()?);
            }
            "only" => {
                let content;
                parenthesized!(content in input);
                let all = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
                self.only = all.into_iter().collect();
            }
            "holds" => {
                input.parse::<Token![=]>()?;
                self.holds = Some(input.parse()?);
            }
            "unit" => self.unit = Some(text(input)?),
            "is" => self.is = Some(expr(input)?),
            "from" => self.from = Some(expr(input)?),
            "rank" => {
                input.parse::<Token![=]>()?;
                self.rank = Some(input.parse()?);
            }
            "part" => self.part = Some(text(input)?),
            "since" => self.since = Some(text(input)?),
            "name" => self.key = text(input)?,
            "text" => self.sentence = text(input)?,
            other => return Err(Error::new(word.span(), format!("unknown attribute `{other}`"))),
        }
        Ok(())
    }
}

fn optional_text(meta: &ParseNestedMeta<'_>) -> Result<Option<String>> {
    if !meta.input.peek(Token![=]) {
        return Ok(None);
    }
    Ok(Some(meta.value()?.parse::<LitStr>()?.value()))
}

/// The first paragraph of the documentation, in one line.
fn sentence(attributes: &[Attribute]) -> String {
    let mut words = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else { continue };
        if !meta.path.is_ident("doc") {
            continue;
        }
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &meta.value else { continue };
        let line = line.value();
        if line.trim().is_empty() && !words.is_empty() {
            break;
        }
        words.extend(line.split_whitespace().map(str::to_owned));
    }
    words.join(" ")
}

/// The error for a key without a sentence.
pub(crate) fn silent(key: &str) -> Error {
    Error::new(Span::call_site(), format!("the key `{key}` has no sentence"))
}

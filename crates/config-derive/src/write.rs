//! The generated code.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Error, Expr, Result, Type};

use crate::parse::{Absent, Declared, RowSpec, silent};

pub(crate) fn section(section: &Declared) -> Result<TokenStream> {
    let name = &section.name;
    let rows = section.rows.iter().filter(|row| row.is_key()).map(row);
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let later = &section.later;
    let read = match &section.read {
        _ if section.is_rows => None,
        Some(read) => Some(quote! { (#read)(s) }),
        None => Some(reading(section)?),
    };
    let read = read.map(|read| {
        quote! {
            impl ::config::section::FromSection for #name {
                fn read(s: &::config::section::Section<'_>) -> Option<Self> {
                    #read
                }
            }
        }
    });
    let compare = section.compare.as_ref().map(|at| comparing(section, at));
    Ok(quote! {
        impl ::config::key_table::KeyTable for #name {
            const ROWS: &'static [::config::key_table::KeyRow] = &[#(#rows),*];
            const LATER: &'static [&'static str] = &[#(#later),*];
        }
        #read
        #compare
    })
}

/// The row of a key.
fn row(row: &RowSpec) -> Result<TokenStream> {
    let RowSpec { key, sentence, note, unit, .. } = row;
    let is = row.is.clone().unwrap_or_else(|| syn::parse_quote!(""));
    if sentence.is_empty() {
        return Err(silent(key));
    }
    let default = match &row.absent {
        Absent::Default(text) => text.clone(),
        Absent::None(text) => text.clone(),
        Absent::Required(_) => "required".to_owned(),
    };
    let is_value = matches!(row.absent, Absent::Default(_));
    let note = note.as_deref().unwrap_or_default();
    let unit = unit.as_deref().unwrap_or_default();
    let since = row.since.as_deref().unwrap_or("0.1.0");
    let change = match &row.change {
        Some(change) => {
            let word = change.to_string();
            let variant = word[..1].to_uppercase() + &word[1..];
            let variant = Ident::new(&variant, change.span());
            quote! { Some(::config::model::Change::#variant) }
        }
        None => quote! { None },
    };
    let nothing = Ident::new("Nothing", Span::call_site());
    let holds = row.holds.as_ref().unwrap_or(&nothing);
    let only = &row.only;
    let rank = row.rank.iter();
    let map = match map_type(row) {
        Some(keys) => {
            let map = row.map.as_ref();
            let of = map.map(|map| map.of.as_str()).unwrap_or_default();
            let is_list = map.is_some_and(|map| map.is_list);
            let at = match map.and_then(|map| map.at.as_ref()) {
                Some(at) => quote! { Some(::config::key_table::KeyPlace::#at) },
                None => quote! { None },
            };
            quote! {
                Some(::config::key_table::KeyMap {
                    rows: <#keys as ::config::key_table::KeyTable>::ROWS,
                    later: <#keys as ::config::key_table::KeyTable>::LATER,
                    of: #of,
                    at: #at,
                    is_list: #is_list,
                })
            }
        }
        None => quote! { None },
    };
    Ok(quote! {
        ::config::key_table::KeyRow {
            key: #key,
            sentence: #sentence,
            is: #is,
            default: #default,
            is_value: #is_value,
            note: #note,
            unit: #unit,
            change: #change,
            holds: ::config::key_table::Holds::#holds,
            since: #since,
            rank: 0 #(+ #rank)*,
            only: &[#(::config::key_table::KeyPlace::#only),*],
            map: #map,
        }
    })
}

/// The type that declares the keys of the map that is the value of a key.
fn map_type(row: &RowSpec) -> Option<&Type> {
    let map = row.map.as_ref()?;
    map.keys.as_ref().or_else(|| {
        let (_, ty) = row.field.as_ref()?;
        Some(RowSpec::inner(ty, "Option").or_else(|| RowSpec::inner(ty, "Vec")).unwrap_or(ty))
    })
}

/// Reads all keys first, so that every problem is reported.
fn reading(section: &Declared) -> Result<TokenStream> {
    if let Some(rest) = section.rest.first() {
        return Err(Error::new(rest.span(), "a field without `key` needs `#[keys(read = …)]`"));
    }
    let fields: Vec<_> =
        section.rows.iter().filter_map(|row| Some((row, row.field.as_ref()?))).collect();
    let values = fields.iter().filter(|(row, _)| row.from.is_none()).map(|(row, (name, ty))| {
        let value = value(row, ty);
        quote! { let #name: Option<#ty> = #value; }
    });
    let all = fields.iter().map(|(row, (name, _))| match &row.from {
        Some(from) => quote! { #name: first.#from },
        None => quote! { #name: #name? },
    });
    let before = section.first.as_ref().map(|first| quote! { let first = (#first)(s); });
    let after = section.first.as_ref().map(|_| quote! { let first = first?; });
    let check = section.check.as_ref().map(|check| quote! { .and_then(|read| (#check)(s, read)) });
    Ok(quote! {
        #before
        #(#values)*
        #after
        Some(Self { #(#all),* }) #check
    })
}

fn value(row: &RowSpec, ty: &Type) -> TokenStream {
    let key = &row.key;
    let is_option = RowSpec::inner(ty, "Option").is_some();
    let is_vec = RowSpec::inner(ty, "Vec").is_some();
    if let Some(with) = &row.with {
        let value = quote! { (#with)(s, #key) };
        return if is_option || is_vec {
            quote! { Some(#value) }
        } else {
            value
        };
    }
    if row.map.is_some() {
        let keys = map_type(row);
        let at = quote! { <Self as ::config::key_table::KeyTable>::map(#key) };
        if key.is_empty() {
            return quote! { s.flat::<#ty>(#at) };
        }
        return if is_option {
            quote! { Some(s.map::<#keys>(#key, #at)) }
        } else {
            quote! { s.map_or_empty::<#keys>(#key, #at) }
        };
    }
    let plain: Expr = syn::parse_quote!(str::parse);
    let read = row.read.as_ref().unwrap_or(&plain);
    if row.is_each {
        return quote! { Some(s.each(#key, #read)) };
    }
    match &row.absent {
        Absent::Default(text) => quote! { s.or(#key, #text, #read) },
        Absent::None(_) => quote! { Some(s.value(#key, #read)) },
        Absent::Required(hint) => {
            let hint = hint.as_deref().unwrap_or_default();
            quote! { s.required(#key, #hint, #read) }
        }
    }
}

/// Compares two values key by key, and keeps what needs a restart.
fn comparing(section: &Declared, at: &str) -> TokenStream {
    let name = &section.name;
    let dot = if at.is_empty() { "" } else { "." };
    let compared = section.rows.iter().filter_map(|row| {
        let field = row.field.as_ref().map(|(field, _)| field);
        if row.is_compared {
            return Some(quote! { self.#field.compare(&other.#field, found); });
        }
        let change = changed(row, &format!("{at}{dot}{}", row.key))?;
        let is_so = match &row.differs {
            Some(differs) => {
                // A closure takes the type of its argument from this annotation.
                quote! {{
                    let of = ::config::key_table::of::<#name, _>(#differs);
                    of(self) != of(other)
                }}
            }
            None => {
                let field = field?;
                quote! { self.#field != other.#field }
            }
        };
        Some(quote! {
            if #is_so {
                found.push(#change);
            }
        })
    });
    let kept = section.rows.iter().filter_map(|row| {
        let field = row.field.as_ref().map(|(field, _)| field)?;
        if row.is_compared {
            return Some(quote! { self.#field.keep_running(&running.#field); });
        }
        let change = changed(row, &row.key)?;
        Some(quote! {
            if (#change).change == ::config::model::Change::Restart {
                self.#field.clone_from(&running.#field);
            }
        })
    });
    quote! {
        impl #name {
            /// Adds the keys whose values differ in `other`.
            pub(crate) fn compare(&self, other: &Self, found: &mut Vec<::config::model::Changed>) {
                #(#compared)*
            }

            /// Takes the values of keys that need a restart from `running`.
            pub(crate) fn keep_running(&mut self, running: &Self) {
                #(#kept)*
            }
        }
    }
}

/// The key at a path, with the effect of its change.
fn changed(row: &RowSpec, path: &str) -> Option<TokenStream> {
    if let Some(part) = &row.part {
        return Some(quote! {
            ::config::model::Changed { key: #part, change: <Self as ::config::key_table::KeyTable>::change(#part) }
        });
    }
    let change = row.change.as_ref()?;
    Some(quote! { ::config::model::Changed::#change(#path) })
}

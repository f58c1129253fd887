//! The routes of a command in the API, and what a request on a route gives.

use serde::de::DeserializeOwned;

use super::fields::{self, Fields, fields_of};
use super::form::{Form, Misread};

/// The method of a request (RFC 9110 section 9). `Get` changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A method and a path of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiRoute {
    pub method: Method,
    /// The path below `/api/v1`. A segment `{name}` is the field `name` of the command.
    pub path: &'static str,
    /// The form of the body, which has the other fields. `None`: the query has them.
    pub body: Option<Form>,
    /// The example of a right query, for the refusal of a wrong one.
    pub query: &'static str,
}

pub(super) const fn get(path: &'static str) -> ApiRoute {
    ApiRoute { method: Method::Get, path, body: None, query: "" }
}

pub(super) const fn post(path: &'static str) -> ApiRoute {
    ApiRoute { method: Method::Post, ..get(path) }
}

pub(super) const fn put(path: &'static str) -> ApiRoute {
    ApiRoute { method: Method::Put, ..get(path) }
}

pub(super) const fn patch(path: &'static str) -> ApiRoute {
    ApiRoute { method: Method::Patch, ..get(path) }
}

pub(super) const fn delete(path: &'static str) -> ApiRoute {
    ApiRoute { method: Method::Delete, ..get(path) }
}

impl ApiRoute {
    /// The route with a body of this form.
    pub(super) const fn body(self, form: Form) -> Self {
        Self { body: Some(form), ..self }
    }

    /// The route with an example of a right query.
    pub(super) const fn query(self, query: &'static str) -> Self {
        Self { query, ..self }
    }
}

/// What a request on a route gives.
#[derive(Debug)]
pub struct Given<'a> {
    pub route: &'static ApiRoute,
    /// The named segments of the path.
    pub path: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    pub body: &'a [u8],
}

impl Given<'_> {
    /// A named segment of the path, or a text of [`Self::set`].
    pub(super) fn segment(&self, name: &str) -> &str {
        self.of_path(name).unwrap_or_default()
    }

    fn of_path(&self, name: &str) -> Option<&str> {
        self.path.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
    }

    /// A field of the query. A repeated field has no defined value.
    pub(super) fn field(&self, name: &str) -> Result<Option<&str>, Misread> {
        let mut all = self.query.iter().filter(|(key, _)| key == name);
        let first = all.next().map(|(_, text)| &**text);
        match all.next() {
            None => Ok(first),
            Some(_) => Err(Misread::Query(format!("`{name}` is given twice"))),
        }
    }

    /// Sets a field of the command, as a segment of the path does.
    pub fn set(&mut self, name: &str, text: &str) {
        self.path.push((name.to_owned(), text.to_owned()));
    }

    /// Gives a segment of the path to a field of another name.
    pub(super) fn rename(&mut self, segment: &str, field: &str) {
        for (name, _) in self.path.iter_mut().filter(|(name, _)| name == segment) {
            field.clone_into(name);
        }
    }

    /// Reads the command by the names of its fields. Other fields of the query are ignored.
    ///
    /// # Errors
    /// A field is wrong, missing or given twice, or the body has an unknown key.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Misread> {
        if let Some(form) = self.route.body {
            return form.read(self.body, &self.path);
        }
        let texts = self.texts(fields_of::<T>())?;
        fields::read(texts).map_err(|why| Misread::query(why, self.route.query))
    }

    /// The known fields of the path, and those of the query that the path does not have.
    fn texts(&self, known: &'static [&'static str]) -> Result<Fields<'_>, Misread> {
        let mut texts = Vec::new();
        for &name in known {
            let text = match self.of_path(name) {
                Some(text) => Some(text),
                None => self.field(name)?,
            };
            texts.extend(text.map(|text| (name, text)));
        }
        Ok(Fields::of_texts(texts.into_iter()))
    }

    /// As [`Self::read`], with a text for a field that the query lacks.
    pub(super) fn read_or<T: DeserializeOwned>(
        &mut self,
        name: &str,
        text: &str,
    ) -> Result<T, Misread> {
        if self.field(name)?.is_none() {
            self.set(name, text);
        }
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::Sample;
    use super::*;

    static ROUTE: ApiRoute = get("/samples/{name}");

    fn given(query: &[(&str, &str)]) -> Given<'static> {
        let texts = query.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let path = vec![("name".to_owned(), "a".to_owned())];
        Given { route: &ROUTE, path, query: texts.collect(), body: b"" }
    }

    #[test]
    fn a_query_field_with_the_name_of_a_segment_is_ignored() {
        let read = given(&[("name", "x"), ("on", "true"), ("name", "y")]).read();
        assert_eq!(read, Ok(Sample { name: "a".into(), on: true, count: None }));
        let twice = given(&[("on", "true"), ("on", "true")]).read::<Sample>();
        assert_eq!(twice, Err(Misread::Query("`on` is given twice".into())));
    }
}

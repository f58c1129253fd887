//! The embedded files: one line for each file of the folder `console`, in the order of the paths. A
//! test compares the list with the folder.

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!(concat!("../../console/", $path)))),*]
    };
}

/// The files by their paths in the folder.
pub(super) const FILES: &[(&str, &[u8])] = files![
    "api.js"
    "feed.js"
    "icon.svg"
    "index.html"
    "main.js"
    "pages/certificates.js"
    "pages/client.js"
    "pages/clients.js"
    "pages/config.js"
    "pages/enrol.js"
    "pages/log.js"
    "pages/overview.js"
    "pages/request.js"
    "pages/requests.js"
    "pages/service-form.js"
    "pages/services.js"
    "pages/settings.js"
    "pages/sign-in.js"
    "pages/streams.js"
    "pages/tools.js"
    "parts/bits.js"
    "parts/body.js"
    "parts/carriers.js"
    "parts/change.js"
    "parts/curl.js"
    "parts/dialog.js"
    "parts/diff.js"
    "parts/editor.js"
    "parts/format.js"
    "parts/help.js"
    "parts/icon.js"
    "parts/keys.js"
    "parts/needs.js"
    "parts/plot.js"
    "parts/preferences.js"
    "parts/qr.js"
    "parts/service-table.js"
    "parts/shell.js"
    "parts/table.js"
    "parts/text.js"
    "parts/toast.js"
    "parts/usual.js"
    "store.js"
    "text/en.js"
    "text/zh.js"
    "theme.css"
    "vendor/hooks.js"
    "vendor/preact.js"
    "vendor/uplot.css"
    "vendor/uplot.js"
];

// The way to the page of the visit, whose name is that of this page but for its first label.

const domain = location.host.slice(location.host.indexOf(".") + 1);
document.getElementById("home").href = `${location.protocol}//visit.${domain}/`;

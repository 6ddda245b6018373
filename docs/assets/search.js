// The theme's search takes every word for the beginning of one: "a" of "save a posterior" finds "algorithm" and "Adam".
// Words that carry no meaning are therefore left out of a question before the search sees it.
const FILLERS = new Set(
  "a an and any are as at be by can do does for from get give how i in into is it me my of on one or so that the this to use want what when where which why will with you your".split(
    " ",
  ),
)

const withoutFillers = (question) =>
  question
    .split(/\s+/)
    .filter((word) => !FILLERS.has(word.toLowerCase()))
    .join(" ") || question

if (typeof Worker !== "undefined") {
  const QUERY = 2
  const send = Worker.prototype.postMessage
  Worker.prototype.postMessage = function (message, ...rest) {
    const asked = message?.type === QUERY && typeof message.data === "string"
    return send.call(this, asked ? { ...message, data: withoutFillers(message.data) } : message, ...rest)
  }
} else {
  module.exports = withoutFillers
}

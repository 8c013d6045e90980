/** Style sheets without their spaces and comments, which would be part of the bundle. */
module.exports = {
  module: {
    rules: [
      {
        test: /\.css$/,
        enforce: 'pre',
        loader: 'builtin:lightningcss-loader',
        options: { minify: true }
      }
    ]
  }
};

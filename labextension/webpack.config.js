/**
 * Style sheets without their spaces and comments, which would be part of the bundle. Modules are called by
 * their paths within it: the numbers that a build gives them depend on where it runs, and two builds of one
 * commit would differ.
 */
module.exports = {
  optimization: { moduleIds: 'named' },
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
